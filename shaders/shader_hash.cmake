# deltaic_shader_hash(HASH SHADERS MODULES): of all sources in the folder SHADERS, and of MODULES, which says what is
# compiled from them. As a script it writes the hash to OUT.
function(deltaic_shader_hash hash shaders modules)
  file(GLOB_RECURSE files RELATIVE ${shaders} ${shaders}/*.comp ${shaders}/*.glsl ${shaders}/*.h)
  list(SORT files)
  set(all "${modules}")
  foreach(file ${files})
    file(SHA256 ${shaders}/${file} sum)
    string(APPEND all "${file} ${sum}\n")
  endforeach()
  string(SHA256 sum "${all}")
  set(${hash} ${sum} PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${MODULES} modules)
  deltaic_shader_hash(hash ${SHADERS} "${modules}")
  file(WRITE ${OUT} ${hash})
endif()
