#pragma once
// The model's own layer that predicts a further token writes ahead (EngineOptions::predicts).
//
// Thread rule: one thread at a time, the engine's.
#include <vector>

#include "engine/inference/engine.h"
#include "engine/inference/speculation/speculator.h"

namespace llorch::engine::inference::speculation {

class ModelPredictor final : public ProposalSource {
 public:
  // REQUIRES: engine.facts().predicts; the engine outlives this, and it is the one that verifies.
  ModelPredictor(Engine& engine, ProposalDraw draw);

  bool propose(std::span<Request> requests) override;
  void remove(scheduling::SequenceId) override {}

 private:
  // Of one request in the rounds of a propose().
  struct Turn {
    Request* request = nullptr;
    ForeseenRow row;
  };

  Engine& engine_;
  ProposalDraw draw_;
  std::vector<Turn> turns_;
  std::vector<ForeseenRow> rows_;
};

}  // namespace llorch::engine::inference::speculation
