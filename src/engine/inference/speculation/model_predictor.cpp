#include "engine/inference/speculation/model_predictor.h"

#include <algorithm>

#include "base/assert.h"

namespace llorch::engine::inference::speculation {

ModelPredictor::ModelPredictor(Engine& engine, ProposalDraw draw) : engine_(engine), draw_(std::move(draw)) {
  ASSERT(engine.facts().predicts, "loaded without the layer that predicts");
  turns_.reserve(engine.facts().slots);
  rows_.reserve(engine.facts().slots);
}

bool ModelPredictor::propose(std::span<Request> requests) {
  turns_.clear();
  for (Request& request : requests) {
    request.count = 0;
    const auto position = static_cast<std::uint32_t>(request.tokens.size() - 1);
    const Turn turn{.request = &request,
                    .row = {.slot = request.slot, .position = position, .token = request.tokens.back()}};
    if (!request.proposals.empty() && engine_.can_foresee(turn.row.slot, position)) turns_.push_back(turn);
  }
  while (!turns_.empty()) {
    rows_.clear();
    for (const Turn& turn : turns_) rows_.push_back(turn.row);
    const base::Result<StepOutput> output = engine_.foresee(rows_);
    if (!output) return true;  // what the device cannot do the step itself will say
    for (std::size_t i = 0; i < turns_.size(); ++i) {
      auto& [request, row] = turns_[i];
      row.token = draw_(request->id, request->proposals.first(request->count), output->row(i));
      request->proposals[request->count++] = row.token;
      ++row.position;
    }
    std::erase_if(turns_, [&](const Turn& turn) {
      return turn.request->count == turn.request->proposals.size() ||
             !engine_.can_foresee(turn.row.slot, turn.row.position);
    });
  }
  return true;
}

}  // namespace llorch::engine::inference::speculation
