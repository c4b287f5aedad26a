"""judge.py FILE LIMIT: whether what flow.py printed is held to a limit in bytes/s
(payload: 0.5 to 1.05 of it on the whole, for emulated CPUs may be slow), and at most 1.4 of it in any second (a segment
of loopback's is 64 KB); with "free" as the limit whether it is above 5 MB/s."""
import sys

rows = [tuple(map(float, line.split())) for line in open(sys.argv[1])]
first = next(i for i, (at, _) in enumerate(rows) if at >= 1)
(t0, b0), (t1, b1) = rows[first], rows[-1]
mean = (b1 - b0) / (t1 - t0)
most, j = 0, first
for at, total in rows[first:]:
    while at - rows[j][0] > 1:
        j += 1
    most = max(most, total - rows[j][1])
print(f"mean {mean:.0f} B/s, at most {most:.0f} bytes in a second")
if sys.argv[2] == "free":
    sys.exit(mean < 5e6)
limit = float(sys.argv[2])
sys.exit(not 0.5 * limit < mean < 1.05 * limit or most > 1.4 * limit)
