#pragma once
// What a load will take, known before any memory is.
#include <filesystem>
#include <vector>

#include "base/result.h"
#include "engine/inference/engine_options.h"
#include "engine/inference/kv_cache/kv_plan.h"
#include "engine/inference/memory/memory_plan.h"
#include "engine/inference/memory/oom_ladder.h"
#include "engine/inference/parallel/devices.h"
#include "engine/io/model_files.h"
#include "engine/models/model.h"
#include "engine/plan/backend.h"

namespace llorch::engine::inference {

// What a load of one shape takes of one device.
struct PartPlan {
  plan::StepLimits limits, encode_limits;
  plan::DrawLimits draw_limits;  // no rows: no device sampler
  bool keeps_checkpoints = false;
  kv_cache::KvPlan kv;
  std::vector<plan::PhysicalMapping> mappings;  // prefill, decode, vision_encode and predict if there are such
  std::vector<plan::PhysicalSpec> buffers;
  memory::MemoryPlan memory_plan;
};

struct LoadPlan {
  io::ModelFiles files;
  std::vector<models::CompiledModel> models;  // by rank
  memory::LoadShape shape;
  std::vector<PartPlan> parts;         // by rank
  std::vector<memory::OomRecord> oom;  // what was given up so far to fit the devices
  parallel::Devices devices;
};

// Errors: as Engine::load(), but for those of memory and of check_shape(): a load may become smaller first.
base::Result<LoadPlan> plan_load(const std::filesystem::path& path, const EngineOptions& options,
                                 const parallel::Devices& devices);
// The same for models compiled by the caller from these files, one per device.
base::Result<LoadPlan> plan_load(io::ModelFiles files, std::vector<models::CompiledModel> models,
                                 const EngineOptions& options, const parallel::Devices& devices);
// Every device must have kernels for steps and contexts of the shape. Errors: UNSUPPORTED_OPCODE.
base::Result<> check_shape(const LoadPlan& load);
// Every device that the model needs must have room for its part. Errors: OUT_OF_DEVICE_MEMORY.
base::Result<> check_fits(const LoadPlan& load);
// Goes on with the next smaller shape when `error` is one of memory and the floors allow it; else returns the error.
base::Result<> make_smaller(const base::Error& error, const EngineOptions& options, LoadPlan& load);

}  // namespace llorch::engine::inference
