// Mutations of inputs. The same seed of the random generator gives the same mutations.
#pragma once

#include "target.hpp"

namespace roci::fuzz {

class Mutator {
public:
    Mutator(const Target& target, std::vector<Bytes> corpus) : target_(target), corpus_(std::move(corpus)) {}
    const std::vector<Bytes>& corpus() const { return corpus_; }

    /// Returns an entry of the corpus with at most four mutations.
    Bytes make(Rng& rng) const;
    /// Applies one mutation.
    void mutate(Bytes& input, Rng& rng) const;

private:
    const Bytes& any(Rng& rng) const;
    void mutate_records(Bytes& input, Rng& rng) const;

    const Target& target_;
    const std::vector<Bytes> corpus_;
};

}  // namespace roci::fuzz
