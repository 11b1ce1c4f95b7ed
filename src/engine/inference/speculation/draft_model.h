#pragma once
// A small model with the vocabulary of the large one, or with some first tokens of it, writes ahead.
//
// Thread rule: one thread at a time, the engine's. Its memory is the engine's that it is given; a sequence has a slot there as
// long as it lives, and sequences beyond its slots get no proposals.
#include <functional>
#include <map>
#include <vector>

#include "base/result.h"
#include "engine/inference/engine.h"
#include "engine/inference/speculation/speculator.h"

namespace llorch::engine::inference::speculation {

class DraftModel final : public ProposalSource {
 public:
  // Why an engine cannot draft, in words for who configured it. Errors: INVALID_PARAMS (state or windows that cannot go back,
  // a model of embeddings).
  static base::Result<> check(const Engine& engine);

  // REQUIRES: check(engine), which outlives this; ids below `vocab` are the same tokens in both models.
  DraftModel(Engine& engine, std::uint32_t vocab, ProposalDraw draw);

  bool propose(std::span<Request> requests) override;
  std::uint32_t behind(scheduling::SequenceId id, std::uint32_t known) const override;
  void remove(scheduling::SequenceId id) override;

 private:
  struct Slot {
    std::vector<base::TokenId> tokens;  // that it holds, some of them its own proposals
  };
  // Of one request in the steps of a propose().
  struct Turn {
    Request* request = nullptr;
    std::uint32_t slot = 0;
    base::TokenId last{};
  };

  Slot* slot_of(scheduling::SequenceId id);
  std::size_t go_back(std::uint32_t slot, std::span<const base::TokenId> tokens);
  // Whether the slot is near enough to the sequence now to draft.
  bool catch_up(std::uint32_t slot, std::span<const base::TokenId> tokens);
  base::Result<> step(std::uint32_t round);

  Engine& engine_;
  std::uint32_t vocab_;
  ProposalDraw draw_;
  std::uint32_t behind_max_;
  std::map<scheduling::SequenceId, std::uint32_t> slots_;
  std::vector<std::uint32_t> free_;
  std::vector<Slot> held_;  // [slots]
  std::vector<Turn> turns_;
  std::vector<SlotRows> rows_;
};

}  // namespace llorch::engine::inference::speculation
