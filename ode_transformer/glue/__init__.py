"""BERT pre-training text, fine-tuning, and the GLUE benchmark."""
