# pack: writes the modules of the headers that the file LIST names into the header OUT, each array spv_X as packed_X of 16-bit
# units, about half as large. runtime/pipeline.c unpacks them:
#   0x0000NNNN with NNNN below 0x8000   NNNN
#   0x000N00MM (most instructions)      0x8NMM
#   any other word                      0xffff, its low half, its high half
file(STRINGS ${LIST} headers)
set(packed "// Made by shaders/pack.cmake.\n")
foreach(header ${headers})
  file(READ ${header} text)
  string(REGEX REPLACE ".*const uint32_t spv_" "const uint16_t packed_" text "${text}")
  string(REGEX REPLACE "0x0000([0-7][0-9a-f][0-9a-f][0-9a-f])" "0x\\1" text "${text}")
  string(REGEX REPLACE "0x000([0-9a-f])00([0-9a-f][0-9a-f])" "0x8\\1\\2" text "${text}")
  string(REGEX REPLACE "0x([0-9a-f][0-9a-f][0-9a-f][0-9a-f])([0-9a-f][0-9a-f][0-9a-f][0-9a-f])" "0xffff,0x\\2,0x\\1" text
                       "${text}")
  string(APPEND packed "${text}")
endforeach()
file(WRITE ${OUT} "${packed}")
