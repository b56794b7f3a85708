"""In which order test files are begun, where several processes share them (pytest-xdist).

The long ones come first, so that none of them is begun when all else is done. Files that mostly wait (for nodes, for a
drive) alternate with files that mostly compute.
"""

LONG = ("ros/test_demo.py", "mapping/test_recordings.py", "ros/test_explore.py", "mapping/test_first_values.py",
        "ros/test_view_live.py", "ros/test_always_listening.py", "commands/test_cli_faults.py",
        "ros/test_autosave.py", "ros/test_resilience.py", "commands/test_cli_check.py", "mapping/test_coverage.py",
        "planning/test_plan.py", "mapping/test_session.py", "ros/test_mapping_node.py", "runtime/test_team.py",
        "ros/test_mapping_services.py", "ros/test_model_live.py", "ros/test_live_equals_offline.py",
        "mapping/test_start.py", "core/models/tiled/test_slices.py", "commands/test_cli.py",
        "mapping/test_window.py", "ros/test_simulator.py", "core/hyper/test_learner_bayes.py",
        "mapping/test_survey_noise.py", "ros/test_player.py", "ros/test_window_asker.py",
        "ros/test_hostile_live.py", "mapping/test_render.py", "ros/test_lifecycle.py",
        "core/models/tiled/test_tiled.py", "ros/test_teams.py", "ros/test_extending_live.py", "test_benchmark.py",
        "core/models/test_streams.py", "test_extending.py", "analysis/test_calibration.py",
        "core/models/dual_svgp/test_rebuild.py", "ros/test_services.py", "ros/test_inputs.py", "test_package.py",
        "commands/test_cli_merge.py", "ros/test_map_frames.py", "core/test_transaction.py",
        "core/sparse/test_worth.py")
