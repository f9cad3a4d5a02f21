"""Package metadata and the compiled kernels.

Without a C++17 compiler the extension is left out with a warning, and spardl runs on its numba kernels.
"""

import os
import sys
from pathlib import Path

from pybind11.setup_helpers import ParallelCompile, Pybind11Extension, build_ext
from setuptools import find_packages, setup

HERE = Path(__file__).parent
ParallelCompile().install()  # as many files at once as there are cores


class OptionalBuildExt(build_ext):
    """Builds the kernels if it can; says what it means for the user if it cannot."""

    def build_extension(self, ext):
        built = HERE / self.get_ext_filename(ext.name)  # by an installation from this folder, for this Python
        newest = max(source.stat().st_mtime for source in (HERE / "setup.py", *(HERE / "csrc").iterdir()))
        if not SANITIZED and built.exists() and built.stat().st_mtime > newest:
            target = Path(self.get_ext_fullpath(ext.name))
            self.mkpath(str(target.parent))
            self.copy_file(built, target)
            return
        try:
            super().build_extension(ext)
        except Exception as error:
            print(
                f"\nspardl: the compiled kernels could not be built ({error}).\n"
                "spardl: installing without them; it will run on numba. For full speed install a C++17 compiler\n"
                "spardl: and run `pip install --force-reinstall --no-deps spardl` again.\n",
                file=sys.stderr,
            )


# Memory errors and undefined behaviour end the process: for `make sanitize`, and nothing else.
SANITIZED = os.environ.get("SPARDL_SANITIZE") == "1"
CHECKS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-g1"]

native = Pybind11Extension(
    "spardl.kernels._native",
    sorted(str(path.relative_to(HERE)) for path in (HERE / "csrc").glob("*.cpp")),
    depends=sorted(str(path.relative_to(HERE)) for path in (HERE / "csrc").glob("*.hpp")),
    cxx_std=17,
    # No -march: one build runs everywhere, AVX2 is chosen at run time. -ffp-contract=off: a fused multiply-add would
    # round differently from the other backends.
    extra_compile_args=[
        *(["-O1", *CHECKS] if SANITIZED else ["-O3"]),
        "-ffp-contract=off",
        "-Wall",
        "-Wextra",
        "-pthread",
    ],
    extra_link_args=["-pthread", *(CHECKS if SANITIZED else [])],
    optional=True,
)

setup(
    name="spardl",
    version="0.1.0",
    description="Sparse all-reduce for data-parallel training on slow or uneven clusters, over MPI",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="BSD-3-Clause",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    packages=find_packages(include=["spardl", "spardl.*"]),
    package_data={"spardl": ["py.typed"], "spardl.kernels": ["*.pyi"]},
    ext_modules=[native],
    cmdclass={"build_ext": OptionalBuildExt},
    install_requires=["numpy>=1.26", "numba>=0.60", "mpi4py>=4.0", "click>=8.1", "rich>=13", "xxhash>=3.4"],
    extras_require={
        "torch": ["torch>=2.6"],
        "cuda12": ["cupy-cuda12x>=14", "numba-cuda[cu12]>=0.30"],  # gradients on GPUs; which one the driver decides
        "cuda13": ["cupy-cuda13x>=14", "numba-cuda[cu13]>=0.30"],
        "train": ["torch>=2.6", "scikit-learn>=1.5"],  # spardl train
        "graphs": ["networkx>=3.2"],  # spardl.graph
        "examples": ["torch>=2.6", "scikit-learn>=1.5", "matplotlib>=3.9", "pillow>=11"],  # examples/, benchmarks/
    },
    entry_points={"console_scripts": ["spardl = spardl.cli:main"]},
    zip_safe=False,
)
