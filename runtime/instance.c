// instance: finds the loader, makes and destroys instances; the validation layer's messages go to the log.
#include "device.h"
#include "platform.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALIDATION_LAYER "VK_LAYER_KHRONOS_validation"

// volk keeps the loader's functions in globals. They are equal for every instance and are loaded once, here. Functions
// of extensions may differ and are loaded where they are used.
static pthread_mutex_t volk_lock = PTHREAD_MUTEX_INITIALIZER;
static bool loader_found, functions_found;

// NVIDIA's driver can be loaded about 30 times into a process (580.159: then the loader finds no device, or crashes),
// and the loader unloads it with the last instance. So one instance stays until the process ends.
static VkInstance anchor;

// The lines of all instances also go to the file that the environment variable DELTAIC_LOG names.
void instance_log(struct instance *instance, deltaic_log_level level, const char *format, ...) {
  char *path = platform_variable("DELTAIC_LOG");
  if (!instance->log && !path) return;
  char line[2048];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  if (instance->log) instance->log(instance->log_user, level, line);
  FILE *file = path ? platform_open(path, "ab") : NULL;
  free(path);
  if (!file) return;
  fprintf(file, "%s\n", line);
  fclose(file);
}

// ---------------------------------------------------------------- instance

static VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT severity,
                                                 VkDebugUtilsMessageTypeFlagsEXT type,
                                                 const VkDebugUtilsMessengerCallbackDataEXT *data, void *user) {
  struct instance *instance = user;
  bool error = severity & VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
  bool validation = type & VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT; // else the loader or a driver talks
  if (error && validation) atomic_fetch_add(&instance->validation_errors, 1);
  instance_log(instance, error && validation ? DELTAIC_LOG_ERROR : DELTAIC_LOG_WARNING, "%s",
               data->pMessage ? data->pMessage : "(no text)");
  return VK_FALSE;
}

static VkDebugUtilsMessengerCreateInfoEXT messenger_info(struct instance *instance) {
  return (VkDebugUtilsMessengerCreateInfoEXT){
      .sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT,
      .messageSeverity =
          VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT,
      .messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_GENERAL_BIT_EXT | VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT |
                     VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT,
      .pfnUserCallback = on_message,
      .pUserData = instance,
  };
}

static bool layer_installed(const char *name) {
  uint32_t count = 0;
  if (vkEnumerateInstanceLayerProperties(&count, NULL) != VK_SUCCESS || !count) return false;
  VkLayerProperties *layers = calloc(count, sizeof *layers);
  bool found = false;
  if (layers && vkEnumerateInstanceLayerProperties(&count, layers) >= VK_SUCCESS)
    for (uint32_t i = 0; i < count; i++) found |= !strcmp(layers[i].layerName, name);
  free(layers);
  return found;
}

static bool instance_extension(const char *layer, const char *name) {
  uint32_t count = 0;
  if (vkEnumerateInstanceExtensionProperties(layer, &count, NULL) != VK_SUCCESS || !count) return false;
  VkExtensionProperties *all = calloc(count, sizeof *all);
  bool found = false;
  if (all && vkEnumerateInstanceExtensionProperties(layer, &count, all) >= VK_SUCCESS)
    for (uint32_t i = 0; i < count; i++) found |= !strcmp(all[i].extensionName, name);
  free(all);
  return found;
}

static deltaic_status create_messenger(struct instance *instance) {
  PFN_vkCreateDebugUtilsMessengerEXT create =
      (PFN_vkCreateDebugUtilsMessengerEXT)vkGetInstanceProcAddr(instance->handle, "vkCreateDebugUtilsMessengerEXT");
  VkDebugUtilsMessengerCreateInfoEXT info = messenger_info(instance);
  if (!create || create(instance->handle, &info, NULL, &instance->messenger) != VK_SUCCESS)
    return fail(DELTAIC_INTERNAL, "the validation layer's messages cannot be received");
  return DELTAIC_OK;
}

// Called under volk_lock. Leaves handle NULL when the machine has no usable Vulkan.
static deltaic_status create_handle(struct instance *instance) {
  uint32_t offered = loader_found ? volkGetInstanceVersion() : 0;
  if (offered < VK_API_VERSION_1_1) return DELTAIC_OK;
  // A loader may promise a later version; what we know of ends at 1.3.
  instance->api_version = offered < VK_API_VERSION_1_3 ? offered : VK_API_VERSION_1_3;

  const char *extensions[2], *layers[1];
  VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                   .pApplicationName = "deltaic",
                                   .pEngineName = "deltaic",
                                   .apiVersion = instance->api_version};
  VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                               .pApplicationInfo = &application,
                               .ppEnabledExtensionNames = extensions,
                               .ppEnabledLayerNames = layers};
  if (instance_extension(NULL, VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME)) { // else MoltenVK stays hidden
    extensions[info.enabledExtensionCount++] = VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME;
    info.flags |= VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
  }
  VkDebugUtilsMessengerCreateInfoEXT messages = messenger_info(instance);
  if (instance->validate) {
    layers[info.enabledLayerCount++] = VALIDATION_LAYER;
    extensions[info.enabledExtensionCount++] = VK_EXT_DEBUG_UTILS_EXTENSION_NAME;
    info.pNext = &messages; // covers vkCreateInstance and vkDestroyInstance themselves
  }
  VkResult result = vkCreateInstance(&info, NULL, &instance->handle);
  if (result == VK_SUCCESS) {
    if (!functions_found) volkLoadInstanceOnly(instance->handle);
    functions_found = true;
    return DELTAIC_OK;
  }
  instance->handle = NULL;
  if (result == VK_ERROR_INCOMPATIBLE_DRIVER) return DELTAIC_OK; // a loader without drivers
  if (result == VK_ERROR_OUT_OF_HOST_MEMORY) return fail_memory("the Vulkan instance", sizeof info);
  return fail(DELTAIC_INTERNAL, "vkCreateInstance failed with VkResult %d", result);
}

deltaic_status instance_create(struct instance *instance, bool validate, log_function log, void *log_user) {
  memset(instance, 0, sizeof *instance);
  instance->log = log;
  instance->log_user = log_user;
  pthread_mutex_lock(&volk_lock);
  if (!loader_found) loader_found = volkInitialize() == VK_SUCCESS && vkCreateInstance;
  instance->validate = validate && loader_found && layer_installed(VALIDATION_LAYER) &&
                       (instance_extension(NULL, VK_EXT_DEBUG_UTILS_EXTENSION_NAME) ||
                        instance_extension(VALIDATION_LAYER, VK_EXT_DEBUG_UTILS_EXTENSION_NAME));
  deltaic_status status = create_handle(instance);
  pthread_mutex_unlock(&volk_lock);
  if (validate && !instance->validate)
    instance_log(instance, DELTAIC_LOG_WARNING, "validation was asked for, but %s is not installed", VALIDATION_LAYER);
  if (!status && instance->handle && instance->validate) status = create_messenger(instance);
  if (status) instance_free(instance);
  return status;
}

// An instance without layers becomes the anchor as it is.
static void destroy_handle(struct instance *instance) {
  pthread_mutex_lock(&volk_lock);
  if (!anchor && !instance->validate) {
    anchor = instance->handle;
    instance->handle = NULL;
  }
  VkInstanceCreateInfo bare = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
  if (!anchor && vkCreateInstance(&bare, NULL, &anchor)) anchor = NULL;
  if (instance->handle) vkDestroyInstance(instance->handle, NULL);
  pthread_mutex_unlock(&volk_lock);
  instance->handle = NULL;
}

void instance_free(struct instance *instance) {
  if (instance->messenger) {
    PFN_vkDestroyDebugUtilsMessengerEXT destroy =
        (PFN_vkDestroyDebugUtilsMessengerEXT)vkGetInstanceProcAddr(instance->handle, "vkDestroyDebugUtilsMessengerEXT");
    if (destroy) destroy(instance->handle, instance->messenger, NULL);
  }
  instance->messenger = VK_NULL_HANDLE;
  if (instance->handle && !atomic_load(&instance->abandoned)) destroy_handle(instance);
  instance->handle = NULL;
}
