#pragma once
// What a person asks for on the command line, as the request that orchestratord gets.
#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "wire/sampling.h"
#include "wire/task.h"

namespace llorch::cli {

struct RunOptions {
  std::string model;
  std::optional<std::string> prompt;       // absent: standard input
  std::optional<std::string> suffix;       // what follows on the answer: the model fills in between the prompt and this
  bool chat = false;                       // the prompt is what a user says, the model's chat template makes the text
  std::optional<std::string> system;       // a system message before it
  std::vector<std::string> images;         // PNG and JPEG files, shown before the prompt; implies chat
  std::string messages;                    // file with a JSON array of messages; empty: none
  std::optional<std::int64_t> max_tokens;  // absent: what the context has room for
  std::optional<double> temperature;
  std::optional<std::uint64_t> seed;
  wire::SamplingRequest sampling;
  std::vector<std::string> stop;
  std::string priority = "interactive";
  std::optional<std::string> session;
  std::string pin_pool;                   // this pool and no other; empty: no wish
  std::vector<std::string> prefer_pools;  // these first
  std::vector<std::string> avoid_pools;
  std::string device_mask;   // the gpu_id it must run on; empty: any
  bool no_fallback = false;  // of prefer_pools
  bool pull = false;         // a model that is not here is fetched without asking
  bool stats = false;        // queue wait, time to first token and tokens/s on standard error
};

namespace stream {

// Whether it has a slash and no scheme before it, as neither a name nor a reference has.
bool is_path(std::string_view model);
// Errors: MODEL_NOT_FOUND, where `model` is a path and no model lies there.
base::Result<> check_path(const std::string& model);
// A path of a model that exists is meant as one; everything else is an alias or a full reference.
std::string model_reference(const std::string& model);
// A PNG or JPEG file as a part of a message. Errors: IO_ERROR, INVALID_PARAMS.
base::Result<boost::json::object> image_part(const std::string& path);
// All but what is said.
wire::SubmitRequest request_without_input(const RunOptions& options);
// Reads standard input or the file of messages where the options say so. Errors: IO_ERROR, INVALID_PARAMS.
base::Result<wire::SubmitRequest> make_request(const RunOptions& options);

}  // namespace stream
}  // namespace llorch::cli
