//! The resend budget of a server: sending again must never become a storm.
