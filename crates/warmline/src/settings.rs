//! Every setting, declared once: name, default, environment, seed's name, help.
