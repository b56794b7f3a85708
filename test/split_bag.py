"""A bag of several files, as a recorder splits it."""

import shutil

import yaml


def joined(path, bags):
    """One bag of the files of these bags, in this order."""
    path.mkdir()
    metadata = yaml.safe_load((bags[0] / "metadata.yaml").read_text())
    about, files = metadata["rosbag2_bagfile_information"], []
    for number, bag in enumerate(bags):
        file = next(p for p in bag.iterdir() if p.suffix != ".yaml")
        files.append(shutil.copy(file, path / f"{number}{file.suffix}").name)
    about["relative_file_paths"] = files
    for topic in about["topics_with_message_count"]:
        topic["message_count"] *= len(bags)
    about["message_count"] *= len(bags)
    (path / "metadata.yaml").write_text(yaml.safe_dump(metadata))
    return path
