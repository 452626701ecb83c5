#pragma once
/// fork(): an adopted page is a shared mapping, but the child must not share it. Handlers of pthread_atfork, registered when the
/// library is loaded, replace each adopted range in the child by a private copy. The parent's fork() returns when this is done.
///
/// There are two limits. Other threads of the parent continue to run, so the child's copy may contain their later writes.
/// Handlers that were registered earlier run first in the child, on memory that is still shared. Single-threaded programs, and
/// programs that exec, are not affected.

namespace roci::memory {

/// Registers the handlers. Only the first call in a process has an effect.
void watch_forks();

}  // namespace roci::memory
