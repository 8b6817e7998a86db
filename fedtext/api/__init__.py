"""The public interface: what ``from fedtext import ...`` gives."""
