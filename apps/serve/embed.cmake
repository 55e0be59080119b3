# embed: writes the file IN as the array serve_page of the header OUT.
file(READ ${IN} bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "// serve_page.h: page.html, made by embed.cmake.\nstatic const unsigned char serve_page[] = {\n${bytes}\n};\n")
