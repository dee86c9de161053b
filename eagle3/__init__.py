"""An EAGLE-3 speculative decoding server in PyTorch, with SGLang's interface.

``python -m eagle3.launch_server --model-path DIR …`` serves; ``eagle3.weights.paths()`` names the
shipped pair; ``python -m eagle3.train OUT`` makes such a pair.
"""
