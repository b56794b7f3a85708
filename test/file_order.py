"""In which order test files are begun, where several processes share them (pytest-xdist).

The long ones come first, so that none of them is begun when all else is done. Files that mostly wait (for nodes, for a
drive) alternate with files that mostly compute.
"""

LONG = ("ros/test_demo.py", "mapping/test_recordings.py", "ros/test_explore.py", "commands/test_cli_faults.py",
        "ros/test_view_live.py", "mapping/test_first_values.py", "ros/test_always_listening.py", "runtime/test_team.py",
        "mapping/test_start.py", "ros/test_autosave.py", "mapping/test_coverage.py", "ros/test_resilience.py",
        "core/models/tiled/test_slices.py", "commands/test_cli_check.py", "planning/test_plan.py",
        "ros/test_mapping_node.py", "commands/test_cli.py", "mapping/test_window.py", "mapping/test_session.py",
        "ros/test_mapping_services.py", "core/models/test_streams.py", "ros/test_model_live.py", "test_benchmark.py",
        "test_extending.py", "ros/test_live_equals_offline.py", "mapping/test_survey_noise.py",
        "core/models/tiled/test_tiled.py", "ros/test_simulator.py", "analysis/test_calibration.py",
        "core/hyper/test_learner_bayes.py", "ros/test_player.py", "commands/test_cli_merge.py",
        "ros/test_window_asker.py", "core/models/dual_svgp/test_rebuild.py", "ros/test_hostile_live.py",
        "mapping/test_render.py", "ros/test_lifecycle.py", "core/test_transaction.py", "ros/test_teams.py",
        "fleet/test_fleet_table.py", "ros/test_extending_live.py", "test_package.py", "fleet/test_fleet_map.py",
        "ros/test_services.py", "store/test_trial.py", "ros/test_inputs.py", "core/sparse/test_worth.py",
        "ros/test_map_frames.py", "core/models/wiski/test_wiski_published.py")
