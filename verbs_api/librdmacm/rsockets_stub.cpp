// Linked against only for its name, the path of the system librdmacm: that is loaded with us, for its r-sockets.
extern "C" int roci_rsockets_stub;
int roci_rsockets_stub = 0;
