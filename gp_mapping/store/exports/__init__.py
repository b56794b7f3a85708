"""What a map is written as for others: pictures, map_server's files (read as well), GeoTIFF."""
