// Handlers for fork(). The child has copies of all pointers and descriptors of its parent's sessions. The child must neither
// change a session of the parent nor keep the session open.
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "context.hpp"

namespace roci::client {
namespace {

struct OpenContexts {
    std::mutex mutex;
    std::vector<Context*> list;
};
OpenContexts& open_contexts() {
    static OpenContexts* const o = new OpenContexts;
    return *o;
}

void close_quietly(int& fd) {
    if (fd >= 0) close(fd);
    fd = -1;
}

/// Runs in the child. Closes the child's copies of the descriptors. If the child kept them open, rocid would not detect the end
/// of the parent. Replaces the shared rings by private memory. Marks the context as inherited, so that the child sends nothing to
/// rocid when it closes objects of the context.
void leave_to_parent(Context& c) {
    c.inherited = true;
    c.link.leave_to_parent();
    c.arena.leave_to_parent();
    replace_by_private(c.doorbells);
    replace_by_private(c.engine_page);
    close_quietly(c.verbs.context.async_fd);
    c.verbs.context.cmd_fd = -1;
    for (int& fd : c.wake_fd) close_quietly(fd);
    pthread_mutex_init(&c.verbs.context.mutex, nullptr);  // another thread of the parent may have held the mutex
}

void before_fork() { open_contexts().mutex.lock(); }
void after_fork_in_parent() { open_contexts().mutex.unlock(); }
void after_fork_in_child() {
    for (Context* c : open_contexts().list) leave_to_parent(*c);
    open_contexts().mutex.unlock();
}

}  // namespace

void remember_context(Context* c) {
    static const int registered = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    (void)registered;
    std::lock_guard guard(open_contexts().mutex);
    open_contexts().list.push_back(c);
}

bool forget_context(Context* c) {
    std::lock_guard guard(open_contexts().mutex);
    if (--c->opens != 0) return false;
    std::erase(open_contexts().list, c);
    return true;
}

Context* find_by_cmd_fd(int fd) {
    struct stat wanted {
    }, have{};
    if (fstat(fd, &wanted) != 0 || !S_ISSOCK(wanted.st_mode)) return nullptr;
    std::lock_guard guard(open_contexts().mutex);
    for (Context* c : open_contexts().list) {
        const int cmd_fd = c->verbs.context.cmd_fd;
        if (cmd_fd < 0 || fstat(cmd_fd, &have) != 0 || have.st_ino != wanted.st_ino || have.st_dev != wanted.st_dev) continue;
        ++c->opens;
        if (cmd_fd != fd) c->imported.push_back(fd);
        return c;
    }
    return nullptr;
}

Context* serving(Context& c) {
    if (!c.inherited) return &c;
    std::lock_guard guard(c.heir_mutex);
    if (c.heir == nullptr) c.heir = ibv_open_device(c.verbs.context.device);
    return c.heir != nullptr ? serving(*Context::from(c.heir)) : nullptr;
}

}  // namespace roci::client

namespace {
std::atomic<bool> fork_asked_for{false};
}

// Only records the call. No preparation is necessary: fork() does not make a shared mapping copy-on-write, so registered memory
// of the parent keeps its pages. memory/fork.cpp gives the child a private copy.
int ibv_fork_init(void) {
    fork_asked_for = true;
    return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void) { return fork_asked_for ? IBV_FORK_ENABLED : IBV_FORK_DISABLED; }

extern "C" __attribute__((visibility("default"))) int ibv_dontfork_range(void*, size_t) { return 0; }
extern "C" __attribute__((visibility("default"))) int ibv_dofork_range(void*, size_t) { return 0; }
