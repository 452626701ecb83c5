// The metrics endpoint: one thread sleeps in poll(2) until a client connects, and answers HTTP requests one after the other. The
// code uses no library, because only GET is needed, and cpp-httplib would add OpenSSL and further threads to a daemon that may
// run as root.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "socket_lock.hpp"

namespace roci::rocid {

/// A text that one thread requests and another thread makes. The requesting thread waits for a limited time.
class TextRequest {
public:
    TextRequest();
    ~TextRequest();
    TextRequest(const TextRequest&) = delete;
    /// Requests the text, waits for it and returns it. Returns an empty text if `limit_ms` has passed, or if close() was called.
    std::string wait_for_text(int limit_ms);
    /// Returns a descriptor that is readable while a request waits. The other thread then calls fulfil().
    int fd() const { return fd_; }
    void fulfil(std::string text);
    void close();

private:
    int fd_ = -1;
    std::mutex lock_;
    std::condition_variable changed_;
    bool closed_ = false, fulfilled_ = false;
    std::string text_;
};

class MetricsServer {
public:
    /// `where` is "127.0.0.1:9471", "[::1]:9471", or the absolute path of a unix socket. The server's thread calls `text`. Throws
    /// pmd::StartError.
    MetricsServer(const std::string& where, std::function<std::string()> text);
    ~MetricsServer();
    MetricsServer(const MetricsServer&) = delete;
    /// Returns the TCP port of the server: the kernel's choice if port 0 was configured, 0 for a unix socket.
    int port() const;

private:
    void lock_path(const std::string& path);
    void run();
    void serve(int connection) const;

    std::function<std::string()> text_;
    std::optional<SocketLock> lock_;  ///< on `path_`
    std::string path_;
    int listen_ = -1, stop_ = -1;
    std::thread thread_;
};

}  // namespace roci::rocid
