#include "engine/inference/paging/prefix_keys.h"

#include "engine/plan/state.h"

namespace llorch::engine::inference::paging {

using plan::kPageTokens;

PrefixKeys::PrefixKeys(std::span<const std::byte> salt) : shares_(!salt.empty()) {
  // With its length, so that no salt can pass for another one and a key.
  salted_.update_u32_le(static_cast<std::uint32_t>(salt.size())).update(salt);
}

void PrefixKeys::extend(std::span<const base::TokenId> tokens) {
  if (!shares_) return;
  PageKey before = keys_.empty() ? PageKey{} : keys_.back();
  while ((keys_.size() + 1) * kPageTokens <= tokens.size()) {
    base::Sha256 hash = salted_;
    hash.update(std::as_bytes(std::span(before)));
    for (const base::TokenId token : tokens.subspan(keys_.size() * kPageTokens, kPageTokens)) {
      hash.update_u32_le(base::index(token));
    }
    keys_.push_back(before = hash.digest());
  }
}

}  // namespace llorch::engine::inference::paging
