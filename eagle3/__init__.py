"""The bundled EAGLE-3 server: PyTorch Llama target and EAGLE-3 draft, runnable alone."""
