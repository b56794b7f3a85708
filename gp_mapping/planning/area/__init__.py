"""Where a robot may measure, and the ways there: polygons, the survey area, travel, what is kept of them."""
