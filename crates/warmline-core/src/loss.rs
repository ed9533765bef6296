//! State loss: what a call gets when what its session remembered is gone.
