"""Maps the five folders at the root, and every package below them, into the package `foldlog`, which is `package/`."""

from setuptools import find_packages, setup

FOLDERS = ("eventlog", "projections", "runtime", "adapters", "replay")

setup(
    packages=[
        "foldlog",
        *(
            f"foldlog.{name}"
            for folder in FOLDERS
            for name in (folder, *(f"{folder}.{sub}" for sub in find_packages(folder)))
        ),
    ],
    package_dir={"foldlog": "package"} | {f"foldlog.{folder}": folder for folder in FOLDERS},
)
