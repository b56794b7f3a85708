"""In which order test files are begun, where several processes share them (pytest-xdist).

The long ones come first, so that none of them is begun when all else is done. Files that mostly wait (for nodes, for a
drive) alternate with files that mostly compute.
"""

LONG = ("ros/test_demo.py", "mapping/test_recordings.py", "ros/test_explore.py", "planning/test_plan.py",
        "ros/test_always_listening.py", "mapping/test_first_values.py", "ros/test_resilience.py",
        "commands/test_cli_check.py", "core/models/tiled/test_slices.py", "ros/test_mapping_node.py",
        "runtime/test_team.py", "ros/test_mapping_services.py", "mapping/test_session.py",
        "ros/test_live_equals_offline.py", "mapping/test_coverage.py", "ros/test_autosave.py",
        "commands/test_cli.py", "ros/test_model_live.py", "mapping/test_fullness.py", "ros/test_services.py",
        "mapping/test_render.py", "ros/test_teams.py", "mapping/test_snapshot.py", "test_extending.py",
        "core/models/tiled/test_tiled.py", "core/hyper/test_learner_bayes.py", "ros/test_view_live.py",
        "mapping/test_start.py", "test_benchmark.py", "core/models/dual_svgp/test_rebuild.py",
        "core/models/dual_svgp/test_dual_memory.py", "core/sparse/test_worth.py", "ros/test_launch.py",
        "planning/test_free_maps.py", "runtime/test_survey.py")
