"""Encoders and decoders on fairseq's base classes."""
