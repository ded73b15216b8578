//! Requests walk from a client to a simulated engine and back, over real sockets.
