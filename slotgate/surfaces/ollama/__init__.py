"""Ollama's API over llama-server's: requests there, answers back, nothing sent or waited for."""
