"""Where a robot may measure and the ways there: polygons, survey area, travel and its caches."""
