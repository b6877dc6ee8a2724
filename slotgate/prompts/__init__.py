"""Prompts compared without a tokenizer."""
