"""Whether rendered files are what their programs take: Kubernetes' own JSON schemas, SkyPilot's own schema of a task.

    python validate.py FOLDER        # of `tonnage suite render --engine kubernetes|skypilot --out FOLDER`

Kubernetes' schemas come with kubernetes-validate, SkyPilot's with skypilot (installed without what it depends on: only the schema is read).
A JobSet is no part of Kubernetes' schemas: the Jobs in it are held against a Job's.
"""

import importlib.machinery
import importlib.util
import sys
import types
import unittest.mock
from pathlib import Path

import yaml


def kubernetes(documents):
    import kubernetes_validate

    for document in documents:
        if document["kind"] == "JobSet":
            assert document["apiVersion"] == "jobset.x-k8s.io/v1alpha2", document["apiVersion"]
            assert set(document["spec"]) == {"network", "failurePolicy", "replicatedJobs"}, document["spec"]
            for job in document["spec"]["replicatedJobs"]:
                assert set(job) == {"name", "replicas", "template"}, job
                whole = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": job["name"]}, **job["template"]}
                kubernetes_validate.validate(whole, "1.29", strict=True)
        else:
            kubernetes_validate.validate(document, "1.29", strict=True)


def sky_schemas():
    """SkyPilot's module of schemas by itself: what it imports of clouds and clients is not needed for a task's form."""
    found = importlib.machinery.PathFinder.find_spec("sky")
    place = Path(found.submodule_search_locations[0]) / "utils" / "schemas.py"
    spec = importlib.util.spec_from_file_location("sky_schemas", place)
    module = importlib.util.module_from_spec(spec)
    with unittest.mock.patch.dict(sys.modules), unittest.mock.patch.object(sys, "meta_path", [Mocks(place.parents[1]), *sys.meta_path]):
        spec.loader.exec_module(module)
        return module.get_task_schema(), module.get_resources_schema()


class Mock(types.ModuleType):
    def __getattr__(self, name):
        if name == "__version__":
            return "1.0"
        if name.startswith("__"):
            raise AttributeError(name)
        whole = f"{self.__name__}.{name}"
        return importlib.import_module(whole) if whole in Mocks.REAL else unittest.mock.MagicMock()


class Mocks:
    """Stands in for every other module of SkyPilot's."""

    REAL = ("sky.skylet.constants", "sky.utils.kubernetes_enums")

    def __init__(self, place):
        self.place = place

    def find_spec(self, name, path=None, target=None):
        if name in self.REAL:
            return importlib.util.spec_from_file_location(name, self.place.joinpath(*name.split(".")[1:]).with_suffix(".py"))
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] == "sky" else None

    def create_module(self, spec):
        return Mock(spec.name)

    def exec_module(self, module):
        pass


def skypilot(task, schemas):
    import jsonschema

    whole, resources = schemas
    # What a mock stands for is no part of a form.
    whole = {**whole, "properties": {**whole["properties"], "resources": resources}}
    jsonschema.Draft7Validator(whole).validate(task)


def main(folder):
    files = sorted(Path(folder).glob("*.yaml"))
    schemas = sky_schemas() if any(file.name.endswith(".sky.yaml") for file in files) else None
    seen = 0
    for file in files:
        documents = list(yaml.safe_load_all(file.read_text()))
        if file.name.endswith(".sky.yaml"):
            skypilot(documents[0], schemas)
        elif "apiVersion" in documents[0]:
            kubernetes(documents)
        else:
            continue
        seen += 1
        print(f"{file.name}: valid")
    assert seen, f"nothing to validate in {folder}"


if __name__ == "__main__":
    main(sys.argv[1])
