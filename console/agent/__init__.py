"""The program shipped to a host over stdin: standard library and pynvml only, Python 3.8+."""
