// The metrics endpoint. One thread sleeps in poll(2) until a client connects, and answers HTTP requests one after the other. The
// code uses no HTTP library, because only GET is needed. The library cpp-httplib would add OpenSSL and further threads to a
// daemon that may run as root.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "socket_lock.hpp"

namespace roci::rocid {

/// Passes a text between two threads. One thread requests the text and waits for a limited time. The other thread creates the
/// text.
class TextRequest {
public:
    TextRequest();
    ~TextRequest();
    TextRequest(const TextRequest&) = delete;
    /// Requests the text, waits for fulfil() and returns the text. Returns an empty text if `limit_ms` have passed, or if close()
    /// was called.
    std::string wait_for_text(int limit_ms);
    /// Returns a descriptor that is readable while a request waits. The other thread must then call fulfil().
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
    /// Listens at `where`, which is for example "127.0.0.1:9471", "[::1]:9471", or the absolute path of a unix socket. Starts the
    /// server's thread, which calls `text` for each request. Throws pmd::StartError.
    MetricsServer(const std::string& where, std::function<std::string()> text);
    ~MetricsServer();
    MetricsServer(const MetricsServer&) = delete;
    /// Returns the TCP port on which the server listens, or 0 for a unix socket. If port 0 is configured, the kernel chooses the
    /// port.
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
