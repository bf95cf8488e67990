import pytest

from rpeg.cluster import device_kind, device_kinds, kind_named
from rpeg.errors import InputError


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("H100", "h100-sxm"),
        ("h100-80gb", "h100-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("H100-80GB (DGX-H100)", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("H100-96GB-HBM2e-500W", "h100-96gb"),
        ("H100-95GB-HBM2e", "h100-96gb"),
        ("A100", "a100-80gb-sxm"),
        ("A100-SXM4-80GB", "a100-80gb-sxm"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb-sxm"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie"),
        ("NVIDIA A100-PCIE-40GB", "a100-40gb-pcie"),
        ("A100 40 GB", "a100-40gb-sxm"),
        ("A800-80GB", "a800-80gb-sxm"),
        ("H200-141GB", "h200"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("GH200-96GB", "gh200-96gb"),
        ("NVIDIA GH200 144G HBM3e", "gh200-144gb"),
        ("H800", "h800-sxm"),
        ("H20-96GB", "h20"),
        ("B200-180GB (power limited)", "b200"),
        ("B200 192GB", "b200"),
        ("NVIDIA GB200", "gb200"),
        ("GB200-186GB", "gb200"),
        ("GB300 (NVL72)", "gb300"),
        ("B300-288GB", "b300"),
        ("L40S-48GB", "l40s"),
        ("NVIDIA L4", "l4"),
        ("L20", "l20"),
        ("A10G-24GB", "a10g"),
        ("NVIDIA A10", "a10"),
        ("RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("A6000", "rtx-a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("Tesla V100-SXM2-32GB", "v100-32gb-sxm"),
        ("CPU", "cpu"),
    ],
)
def test_spellings_that_people_use(text: str, name: str) -> None:
    assert kind_named(text) is device_kind(name)


@pytest.mark.parametrize("name", device_kinds())
def test_a_kind_answers_to_its_own_name(name: str) -> None:
    assert kind_named(name).name == name
    assert kind_named(name.upper()).name == name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("H1000", r"no device kind 'H1000'. Did you mean 'h100'\? Or describe it under 'kinds'"),
        ("Ascend 910C", "no device kind 'Ascend 910C'.*Or describe it"),
        ("", "no device kind ''"),
        ("A100-64GB", r"'A100-64GB' has 64 GB, the nearest kind a100-80gb-sxm has 80\. Or describe it"),
        ("V100-16GB", "has 16 GB, the nearest kind v100-32gb-sxm has 32"),
    ],
)
def test_unknown_devices_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        kind_named(text)
