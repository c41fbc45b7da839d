"""BERT pre-training text, fine-tuning on sentences, and the GLUE benchmark."""
