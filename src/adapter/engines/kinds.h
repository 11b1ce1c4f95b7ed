#pragma once
// The kinds of engines there are; one file each.
#include "adapter/engines/engine.h"

namespace llorch::adapter::engines {

const Engine& openai();       // any server of the OpenAI API
const Engine& vllm();         // its OpenAI-compatible server, with what it adds
const Engine& llamacpp();     // llama.cpp's server, its own API
const Engine& tgi();          // Text Generation Inference, its own API
const Engine& triton();       // Triton Inference Server's generate extension
const Engine& triton_grpc();  // the same server's stream of the KServe v2 protocol

}  // namespace llorch::adapter::engines
