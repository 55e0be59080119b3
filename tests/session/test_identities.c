// What tells a device apart, UUID, LUID and PCI address, is what Vulkan says; by its UUID each one opens.
#include "device.h"
#include "test_folder.h"

#include "devices.h" // last: its macro fail() must not meet the declaration of ours

#include <string.h>

struct identity {
  VkPhysicalDeviceIDProperties id;
  VkPhysicalDevicePCIBusInfoPropertiesEXT pci;
};

// What the test has put in the driver's place.
static struct identity made;

static PFN_vkGetPhysicalDeviceProperties2 real_properties;
static PFN_vkEnumerateDeviceExtensionProperties real_extensions;

static void VKAPI_CALL made_properties(VkPhysicalDevice physical, VkPhysicalDeviceProperties2 *properties) {
  real_properties(physical, properties);
  for (VkBaseOutStructure *p = (VkBaseOutStructure *)properties; p; p = p->pNext) {
    if (p->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES) {
      VkPhysicalDeviceIDProperties *id = (VkPhysicalDeviceIDProperties *)p;
      memcpy(id->deviceLUID, made.id.deviceLUID, sizeof id->deviceLUID);
      id->deviceLUIDValid = made.id.deviceLUIDValid;
    } else if (p->sType == VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT) {
      VkPhysicalDevicePCIBusInfoPropertiesEXT *pci = (VkPhysicalDevicePCIBusInfoPropertiesEXT *)p;
      pci->pciDomain = made.pci.pciDomain, pci->pciBus = made.pci.pciBus;
      pci->pciDevice = made.pci.pciDevice, pci->pciFunction = made.pci.pciFunction;
    }
  }
}

// The driver's, and one for PCI addresses.
static VkResult VKAPI_CALL made_extensions(VkPhysicalDevice physical, const char *layer, uint32_t *count,
                                           VkExtensionProperties *list) {
  uint32_t there = list ? *count - 1 : 0;
  const VkResult result = real_extensions(physical, layer, &there, list);
  if (list) list[there] = (VkExtensionProperties){.extensionName = VK_EXT_PCI_BUS_INFO_EXTENSION_NAME};
  *count = there + 1;
  return result;
}

static bool has_pci_info(VkPhysicalDevice physical) {
  static VkExtensionProperties list[1024];
  uint32_t count = 1024;
  assert_int_equal(vkEnumerateDeviceExtensionProperties(physical, NULL, &count, list), VK_SUCCESS);
  for (uint32_t i = 0; i < count; i++)
    if (!strcmp(list[i].extensionName, VK_EXT_PCI_BUS_INFO_EXTENSION_NAME)) return true;
  return false;
}

// What Vulkan says of the device with this UUID, asked here. Returns whether it tells the PCI address.
static bool ask_vulkan(const uint8_t uuid[16], struct identity *out) {
  VkPhysicalDevice all[16];
  uint32_t count = 16;
  const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO, .apiVersion = VK_API_VERSION_1_1};
  const VkInstanceCreateInfo bare = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO, .pApplicationInfo = &application};
  VkInstance instance;
  bool found = false, pci = false;
  assert_int_equal(vkCreateInstance(&bare, NULL, &instance), VK_SUCCESS);
  assert_int_equal(vkEnumeratePhysicalDevices(instance, &count, all), VK_SUCCESS);
  for (uint32_t i = 0; i < count && !found; i++) {
    *out = (struct identity){.id.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_ID_PROPERTIES,
                             .pci.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PCI_BUS_INFO_PROPERTIES_EXT};
    VkPhysicalDeviceProperties2 properties = {.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2,
                                              .pNext = &out->id};
    pci = has_pci_info(all[i]);
    if (pci) out->id.pNext = &out->pci;
    vkGetPhysicalDeviceProperties2(all[i], &properties);
    found = !memcmp(out->id.deviceUUID, uuid, VK_UUID_SIZE);
  }
  vkDestroyInstance(instance, NULL);
  assert_true(found);
  return pci;
}

static void check_identities(deltaic_context *context) {
  deltaic_device_info infos[16];
  size_t count;
  assert_ok(deltaic_devices(context, infos, 16, &count));
  for (size_t i = 0; i < count; i++) {
    static const uint8_t zeros[16];
    struct identity want;
    char pci[16] = "";
    if (infos[i].kind == DELTAIC_DEVICE_CPU) {
      assert_memory_equal(infos[i].uuid, zeros, 16);
      assert_memory_equal(infos[i].luid, zeros, 8);
      assert_string_equal(infos[i].pci, "");
      continue;
    }
    if (ask_vulkan(infos[i].uuid, &want))
      snprintf(pci, sizeof pci, "%04x:%02x:%02x.%x", want.pci.pciDomain, want.pci.pciBus, want.pci.pciDevice,
               want.pci.pciFunction);
    assert_memory_equal(infos[i].luid, want.id.deviceLUIDValid ? want.id.deviceLUID : zeros, 8);
    assert_string_equal(infos[i].pci, pci);
  }
}

// Software has no address and, but for Windows, no LUID: so the second time Vulkan gives some.
static void identities_are_vulkans(void **state) {
  deltaic_context *context = test_context();
  check_identities(context);
  real_properties = vkGetPhysicalDeviceProperties2, real_extensions = vkEnumerateDeviceExtensionProperties;
  vkGetPhysicalDeviceProperties2 = made_properties, vkEnumerateDeviceExtensionProperties = made_extensions;
  made = (struct identity){.id = {.deviceLUID = {1, 2, 3, 4, 5, 6, 7, 0xf8}, .deviceLUIDValid = VK_TRUE},
                           .pci = {.pciDomain = 0x12, .pciBus = 0xc1, .pciDevice = 0x1e, .pciFunction = 7}};
  deltaic_device_info first;
  size_t count;
  check_identities(context);
  assert_ok(deltaic_devices(context, &first, 1, &count));
  assert_true(count > 1); // the CPU is the last
  assert_memory_equal(first.luid, made.id.deviceLUID, 8);
  assert_string_equal(first.pci, "0012:c1:1e.7");
  made.id.deviceLUIDValid = VK_FALSE;
  check_identities(context);
  vkGetPhysicalDeviceProperties2 = real_properties, vkEnumerateDeviceExtensionProperties = real_extensions;
  deltaic_context_free(context);
}

// Of several devices, not the first alone.
static void each_device_opens_by_its_uuid(void **state) {
  deltaic_context *context = test_context();
  deltaic_device_info infos[16], opened;
  size_t count;
  assert_ok(deltaic_devices(context, infos, 16, &count));
  for (size_t i = 0; i < count; i++) {
    if (infos[i].kind == DELTAIC_DEVICE_CPU || !infos[i].usable) continue;
    const deltaic_device_options o = {.size = sizeof o, .uuid = infos[i].uuid};
    deltaic_device *device;
    assert_ok(deltaic_device_open(context, &o, &device));
    deltaic_device_get_info(device, &opened);
    assert_memory_equal(opened.uuid, infos[i].uuid, 16);
    assert_memory_equal(opened.luid, infos[i].luid, 8);
    assert_string_equal(opened.pci, infos[i].pci);
    deltaic_device_close(device);
  }
  deltaic_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(identities_are_vulkans),
                                     cmocka_unit_test(each_device_opens_by_its_uuid)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
