# Read by llama.cpp's build before its first project() (.cargo/config.toml). Its folder `common` and the HTTP client that this
# brings take a third of the time to compile, and nothing here links them: the binding asks for them whatever features it has.
set(LLAMA_BUILD_COMMON OFF CACHE BOOL "" FORCE)
