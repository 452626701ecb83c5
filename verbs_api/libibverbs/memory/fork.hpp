#pragma once
/// Handlers for fork(). An adopted page (adopt.hpp) is a shared mapping, but the child must not share the page with the parent.
/// So handlers of pthread_atfork(3) replace each adopted range in the child by a private copy. The library registers the handlers
/// when it is loaded. The parent's fork() waits until the copies are complete, but at most a minute.
///
/// The handlers have two limits. Other threads of the parent continue to run, so the child's copy may contain later writes of
/// these threads. If other code has registered child handlers earlier, these handlers run first and use memory that is still
/// shared.

namespace roci::memory {

/// Registers the handlers. Only the first call in a process has an effect.
void watch_forks();

}  // namespace roci::memory
