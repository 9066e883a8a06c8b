"""What is installed, what really runs, and what mends the rest.

Nothing is taken on trust: the list of providers that ONNX Runtime gives is what it was built with, a
package's metadata says nothing about the files on disk, and a driver may be older than the libraries.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import os
import platform
import re
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from onnx_sched.judge.cuda_driver import Driver, driver
from onnx_sched.judge.environment import installed
from onnx_sched.judge.ortlib import CPU, CUDA, NVIDIA, first_line, import_ort, preload_libraries

if TYPE_CHECKING:
    from onnx_sched.judge.probe import ProviderStatus

State = Literal["ok", "note", "bad"]

_NEEDED = ("onnx-sched", "numpy", "onnx", "onnx-graphsurgeon", "click", "rich")
_RUNTIME = re.compile(r"(onnxruntime|ort-nightly)(-.*)?")
_NOT_RUNTIMES = ("onnxruntime-extensions", "onnxruntime-genai", "onnxruntime-tools")
_WITH_GPU = ("onnxruntime-gpu", "ort-nightly-gpu")
_GET_LIBRARIES = "pip install 'onnx-sched[cuda]'"
_LAST_CUDA_12 = "pip install 'onnxruntime-gpu[cuda,cudnn]<1.27'"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        section: `packages`, `runtime`, `cuda` or `extras`.
        name: What.
        state: `ok`; `note` for what is missing but not needed; `bad` for what is broken.
        value: What was found.
        fix: The command, or the deed, that mends it; empty if there is nothing to mend.
    """

    section: str
    name: str
    state: State
    value: str
    fix: str = ""

    def to_dict(self) -> dict[str, str]:
        """As JSON."""
        return {
            "section": self.section,
            "name": self.name,
            "state": self.state,
            "value": self.value,
            "fix": self.fix,
        }


def examine() -> tuple[Check, ...]:
    """Look at everything; never raises, never prints."""
    own = [_package(name) for name in _NEEDED]
    python = Check("packages", "python", "ok", f"{platform.python_version()} on {sys.platform}")
    module, runtime = _runtime()
    providers = [] if module is None else _providers(module)
    usable = any(c.name == CUDA and c.state == "ok" for c in providers)
    cuda = [] if module is None else _cuda(module, usable=usable)
    if any(check.fix for check in cuda):
        # What driver, device or libraries lack is said once, with what mends it.
        providers = [replace(c, fix="") if c.name in NVIDIA else c for c in providers]
    return (python, *own, *runtime, *providers, *cuda, *_extras(usable=usable))


def healthy(checks: tuple[Check, ...]) -> bool:
    """Whether models can run at all: on the CPU."""
    return any(check.name == CPU and check.state == "ok" for check in checks)


def _package(name: str) -> Check:
    version = installed(name)
    if version is None:
        return Check("packages", name, "bad", "not installed", f"pip install {name}")
    return Check("packages", name, "ok", version)


def _runtime() -> tuple[Any, list[Check]]:
    """The module, if it is one, and what there is to say about its packages."""
    found = runtime_packages()
    names = [name for name, _ in found]
    listed = ", ".join(f"{name} {version}" for name, version in found)
    try:
        module = import_ort()
    except ImportError as error:
        fix = _reinstall(names) if names else "pip install onnxruntime-gpu (or onnxruntime)"
        why = f"{listed}, but it cannot be imported: {first_line(error)}" if names else "none"
        return None, [Check("runtime", "onnxruntime", "bad", why, fix)]
    if not hasattr(module, "InferenceSession"):
        why = f"{listed or 'not installed'}, but its folder was emptied by uninstalling another"
        return None, [Check("runtime", "onnxruntime", "bad", why, _reinstall(names))]
    written = written_by(module)
    if len(found) > 1:
        why = f"{listed} share one folder; the files are those of {written}"
        return module, [Check("runtime", "onnxruntime", "bad", why, _keep_one(names))]
    version = str(getattr(module, "__version__", "unknown"))
    if found and found[0][1].split("+")[0] != version.split("+")[0]:
        why = f"{listed}, but the files are those of {version}"
        return module, [Check("runtime", "onnxruntime", "bad", why, _reinstall(names))]
    value = listed or f"{version}, not installed as a package"
    return module, [Check("runtime", "onnxruntime", "ok" if found else "note", value)]


def runtime_packages() -> tuple[tuple[str, str], ...]:
    """(name, version) of every installed package that writes the folder `onnxruntime`."""
    found = {}
    for package in importlib.metadata.distributions():
        name = str(package.metadata["Name"] or "").lower().replace("_", "-")
        if _RUNTIME.fullmatch(name) and name not in _NOT_RUNTIMES:
            found[name] = package.version
    return tuple(sorted(found.items()))


def written_by(module: Any) -> str:
    """The package whose files lie in the folder, as they say themselves."""
    try:
        info = importlib.import_module(f"{module.__name__}.capi.build_and_package_info")
    except ImportError:
        return f"onnxruntime {getattr(module, '__version__', '')}".strip()
    return (
        f"{getattr(info, 'package_name', 'onnxruntime')} {getattr(info, '__version__', '')}".strip()
    )


def built_for(module: Any) -> tuple[int, int] | None:
    """The CUDA version that the module was built for; None if for none, or if it does not say."""
    try:
        info = importlib.import_module(f"{module.__name__}.capi.build_and_package_info")
    except ImportError:
        return None
    match = re.match(r"(\d+)\.(\d+)", str(getattr(info, "cuda_version", "") or ""))
    return (int(match[1]), int(match[2])) if match else None


def _reinstall(names: list[str]) -> str:
    if len(names) > 1:
        return _keep_one(names)
    return f"pip install --force-reinstall --no-deps {names[0] if names else 'onnxruntime-gpu'}"


def _keep_one(names: list[str]) -> str:
    kept = next((name for name in names if name in _WITH_GPU), names[0])
    return f"pip uninstall -y {' '.join(names)} && pip install {kept}"


def _providers(module: Any) -> list[Check]:
    """Every provider of the build, tried on a model of one node."""
    try:
        from onnx_sched.judge.probe import probe
    except ImportError as error:
        return [Check("runtime", CPU, "bad", f"cannot be tried: {first_line(error)}")]
    return [_provider(probe(name)) for name in module.get_available_providers()]


def _provider(status: ProviderStatus) -> Check:
    if status.usable:
        return Check("runtime", status.name, "ok", "runs")
    state: State = "bad" if status.name == CPU else "note"
    return Check("runtime", status.name, state, f"does not run: {status.reason}", status.hint)


def _cuda(module: Any, *, usable: bool) -> list[Check]:
    """Build, driver, device and libraries: whatever CUDA needs."""
    available = CUDA in module.get_available_providers()
    if not available:
        fix = "" if platform.system() == "Darwin" else _switch_to_gpu()
        return [Check("cuda", "build", "note", "onnxruntime was built without CUDA", fix)]
    built = built_for(module)
    text = f"for CUDA {built[0]}.{built[1]}" if built else "for an unknown version of CUDA"
    checks = [Check("cuda", "build", "ok", text)]
    found = driver()
    checks += _driver(found, built)
    if sys.platform == "linux" and built is not None:
        checks.append(_libraries(built[0], usable=usable))
    return checks


def _switch_to_gpu() -> str:
    names = [name for name, _ in runtime_packages()]
    return f"pip uninstall -y {' '.join(names)} && pip install 'onnx-sched[cuda]'"


def _driver(found: Driver, built: tuple[int, int] | None) -> list[Check]:
    if not found.found:
        fix = "install the NVIDIA driver; in a container: docker run --gpus all"
        return [Check("cuda", "driver", "note", "no NVIDIA driver", fix)]
    version = f"supports CUDA {found.cuda[0]}.{found.cuda[1]}" if found.cuda else "unknown version"
    if found.cuda and built and found.cuda[0] < built[0]:
        why = f"{version}, but this onnxruntime needs CUDA {built[0]}"
        older = f", or {_LAST_CUDA_12}" if found.cuda[0] == 12 else ""
        checks = [Check("cuda", "driver", "bad", why, f"update the NVIDIA driver{older}")]
    else:
        checks = [Check("cuda", "driver", "ok", version)]
    if found.devices:
        return [*checks, Check("cuda", "device", "ok", ", ".join(found.devices))]
    return [*checks, _no_device(found.failure)]


def _no_device(failure: str) -> Check:
    """A driver that sees nothing: often because it was told to."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if hidden is None:
        return Check(
            "cuda", "device", "bad", failure, "nvidia-smi, which says what the driver sees"
        )
    value = f"{failure}; CUDA_VISIBLE_DEVICES is '{hidden}'"
    return Check("cuda", "device", "bad", value, "unset CUDA_VISIBLE_DEVICES")


def _libraries(major: int, *, usable: bool) -> Check:
    """The libraries that this build loads; those of another CUDA are named, as they do not help."""
    preload_libraries(CUDA)
    missing = [name for name in libraries(major) if not _loads(name)]
    if not missing:
        return Check("cuda", "libraries", "ok", f"of CUDA {major} and cuDNN 9")
    if usable:
        # What runs needs no mending, wherever its libraries are.
        return Check("cuda", "libraries", "ok", f"not all by name: {', '.join(missing)}")
    others = [other for other in (11, 12, 13) if other != major and _brought(other)]
    why = f"missing: {', '.join(missing)}"
    if others:
        why += f"; those of CUDA {others[-1]} are installed, but this build needs {major}"
    return Check("cuda", "libraries", "note", why, _GET_LIBRARIES)


def libraries(major: int) -> tuple[str, ...]:
    """The names of the libraries that a build for this CUDA loads on Linux.

    >>> libraries(13)[0]
    'libcudart.so.13'
    """
    fft = 12 if major >= 13 else 11
    names = (f"cudart.so.{major}", f"cublasLt.so.{major}", f"cublas.so.{major}")
    return tuple(f"lib{name}" for name in (*names, f"cufft.so.{fft}", "curand.so.10", "cudnn.so.9"))


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _brought(major: int) -> bool:
    """Whether libraries of this CUDA are installed, as packages or otherwise."""
    names = {
        str(package.metadata["Name"] or "").lower()
        for package in importlib.metadata.distributions()
    }
    if major < 13 and f"nvidia-cublas-cu{major}" in names:
        return True
    if major == 13 and "nvidia-cublas" in names:
        return True
    return _loads(libraries(major)[0])


def _extras(*, usable: bool) -> list[Check]:
    """What counts kernels and reads memory, where there is a GPU."""
    torch, cupti = installed("torch"), installed("cupti-python")
    checks = [
        _extra("torch", torch, "counts kernels; exports models"),
        _extra("cupti-python", cupti, "counts kernels"),
        _extra("nvidia-ml-py", installed("nvidia-ml-py"), "reads device memory"),
    ]
    if usable and torch is None and cupti is None:
        why = "not available: neither torch nor cupti-python is installed"
        fix = "pip install 'onnx-sched[cupti]'"
        checks.append(Check("extras", "kernel counts", "note", why, fix))
    return checks


def _extra(name: str, version: str | None, use: str) -> Check:
    if version is None:
        return Check("extras", name, "note", f"not installed ({use})")
    return Check("extras", name, "ok", f"{version} ({use})")
