#pragma once
/// fork(): an adopted page is a shared mapping, but the child must not share it with the parent. Handlers of pthread_atfork
/// replace each adopted range in the child by a private copy. They are registered when the library is loaded. The parent's fork()
/// returns when the copies are complete.
///
/// This has two limits. Other threads of the parent continue to run, so the child's copy may contain their later writes. Child
/// handlers that were registered earlier run first, on memory that is still shared. Neither limit affects single-threaded
/// programs or programs that exec.

namespace roci::memory {

/// Registers the handlers. Only the first call in a process has an effect.
void watch_forks();

}  // namespace roci::memory
