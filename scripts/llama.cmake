# llama.cpp's build reads this file before each project() (.cargo/config.toml). llama.cpp's folder `common`, together with
# the HTTP client that it needs, takes a third of the compile time, and nothing in this crate links to it. The binding
# builds it whatever features are selected.
set(LLAMA_BUILD_COMMON OFF CACHE BOOL "" FORCE)
add_compile_options("$<$<AND:$<COMPILE_LANGUAGE:C,CXX>,$<NOT:$<C_COMPILER_ID:MSVC>>>:SHELL:-include \"${CMAKE_CURRENT_LIST_DIR}/llama.h\">")
