"""A small fleet: four short drives over one field, side by side."""

from small_drive import lanes, write_drive

from gp_mapping.settings.build import Parameters

HELD = {
    "learn_hyperparameters": False,
    "learn_time_offset": False,
    "learn_bias": False,
    "heading_stddev": 0.0,
    "lengthscale": 0.7,
    "signal_stddev": 8e-6,
    "noise_stddev": 3e-7,
    "constant_stddev": 3e-5,
    "robust": False,
    "follow_changes": False,
    "local_scale": False,
    "resolution": 0.1,
    "cell_length": 0.2,
}


def write_fleet(folder, count=4, length=1.5, spoil=None):
    """Bags robot0, robot1, … in a folder; spoil: as of write_drive, by number. Their paths."""
    for i in range(count):
        write_drive(
            folder / f"robot{i}",
            lanes(0.2 * i, 3, length),
            1000.0 * (i + 1),
            rate=10.0,
            seed=i,
            spoil=(spoil or {}).get(i),
        )
    return [str(folder / f"robot{i}") for i in range(count)]


def parameters(**settings):
    return Parameters.build(settings)
