"""Hooks of mkdocs: where links lead, anchors as on GitHub, and the list of versions."""

import json
import os
import re

from mkdocs.exceptions import PluginError

TARGET = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")
WANTED = []  # (page, page that it leads to, anchor)
CODE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def slug(text, separator):
    """The anchor of a heading, as GitHub makes it."""
    kept = re.sub(r"[^\w\- ]", "", text.strip().lower())
    return kept.replace(" ", separator)


def on_files(files, config):
    """Leaves out Go code, which would be a package of the repository in bin/."""
    for file in list(files):
        if file.src_path.endswith(".go"):
            files.remove(file)
    return files


def on_page_markdown(markdown, page, config, files):
    """Leads links that leave docs/ to the repository."""
    root = os.path.dirname(config["docs_dir"])
    folder = os.path.dirname(os.path.join(config["docs_dir"], page.file.src_path))

    def lead(match):
        target, anchor = match.group(1), match.group(2) or ""
        if re.match(r"[a-z]+:", target):
            return match.group(0)
        path = os.path.normpath(os.path.join(folder, target))
        if path.startswith(config["docs_dir"] + os.sep) and os.path.isfile(path):
            if anchor and path.endswith(".md"):
                to = os.path.relpath(path, config["docs_dir"])
                WANTED.append((page.file.src_path, to, anchor[1:]))
            return match.group(0)
        if not os.path.exists(path):
            raise PluginError(f"{page.file.src_path}: there is no {target}")
        kind = "tree" if os.path.isdir(path) else "blob"
        return f"]({config['repo_url']}/{kind}/main/{os.path.relpath(path, root)}{anchor})"

    parts = CODE.split(markdown)
    return "".join(part if part.startswith("`") else TARGET.sub(lead, part) for part in parts)


def on_nav(nav, config, files):
    """Each page but the decisions is in the navigation."""
    listed = {page.file.src_path for page in nav.pages}
    for file in files.documentation_pages():
        if file.src_path not in listed and not file.src_path.startswith("decisions/"):
            raise PluginError(f"{file.src_path} is not in the navigation of build/site/mkdocs.yml")


def on_env(env, config, files):
    """Each anchor that a link leads to is there."""
    anchors = {}
    for file in files.documentation_pages():
        items, anchors[file.src_path] = list(file.page.toc), set()
        while items:
            item = items.pop()
            anchors[file.src_path].add(item.id)
            items += item.children
    missing = [link for link in WANTED if link[2] not in anchors[link[1]]]
    if missing:
        raise PluginError("\n".join(f"{page}: {to} has no #{anchor}" for page, to, anchor in missing))


def on_post_build(config):
    """Lists the versions that were built beside each other, for the selector of the theme."""
    parent = os.path.dirname(os.path.normpath(config["site_dir"]))
    versions = sorted((entry.name for entry in os.scandir(parent) if entry.is_dir()), reverse=True)
    newest = next((version for version in versions if version != "main"), "main")
    listed = [
        {"version": version, "title": version, "aliases": ["latest"] if version == newest else []}
        for version in versions
    ]
    with open(os.path.join(parent, "versions.json"), "w", encoding="utf-8") as file:
        json.dump(listed, file)
    with open(os.path.join(parent, "index.html"), "w", encoding="utf-8") as file:
        file.write('<!doctype html><meta charset="utf-8"><title>Documentation</title>')
        file.write(f'<meta http-equiv="refresh" content="0; url={newest}/index.html">\n')
