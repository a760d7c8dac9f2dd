"""Compares a dataset's fitted numbers and shards with numpy and scikit-learn.

usage: compare.py LANDING_FOLDER DATASET_FOLDER [SERIES]
       compare.py --all NAME LANDING_FOLDER DATASET_FOLDER SERIES [NAME ...]

SERIES is the JSON of `{"series": ..., "feature": [...]}` of a dataset of one entity in UTC whose copies of an instant are
dropped: its features are made here again, window by window.

The landed rows are read with pyarrow; the training rows are those whose origin stands in the training shards; every
step is fitted again with scikit-learn or numpy on them, in order. Prints a table, fails above 1e-9 relative, and where a
quantile differs at all. With `--all` the table has a row for each dataset; SERIES is empty where there is none.
"""

import bisect
import datetime
import glob
import json
import os
import sys
import warnings

import numpy as np
import polars
import pyarrow.ipc
import pyarrow.parquet
import scipy.optimize
import scipy.special
import scipy.stats
from sklearn.impute import KNNImputer, SimpleImputer
from sklearn.preprocessing import KBinsDiscretizer, MinMaxScaler, RobustScaler, StandardScaler, TargetEncoder

LIMIT = 1e-9


# Features that are cells of a column, or differences of two: the same to the last bit whoever makes them.
EXACT_FEATURES = {"lag", "difference", "momentum", "rolling_min", "rolling_max", "forward_fill", "calendar"}


def main(landing, dataset, series=None):
    table, rows = compare(landing, dataset, series)
    table.show()
    print(f"{rows} training rows, {len(table.rows)} numbers, worst relative difference {table.worst():.2e}")
    if not table.agrees():
        raise SystemExit("the numbers differ")


def all_of(arguments):
    print(f"{'file':<58} {'rows':>6} {'columns':>7} {'numbers':>7} {'largest relative difference':>28} {'quantiles equal':>16}")
    bad = []
    for name, landing, dataset, series in zip(*[iter(arguments)] * 4, strict=True):
        table, rows = compare(landing, dataset, series or None)
        columns, equal = len({row[0] for row in table.rows}), f"{table.equal} of {table.quantiles}"
        print(f"{name:<58} {rows:>6} {columns:>7} {len(table.rows):>7} {table.worst():>28.2e} {equal:>16}")
        if not table.agrees():
            bad.append(name)
            table.show()
    if bad:
        raise SystemExit(f"the numbers differ: {bad}")


def compare(landing, dataset, series):
    """All numbers of a dataset beside those made here, and the number of training rows."""
    manifest = json.load(open(os.path.join(dataset, open(os.path.join(dataset, "CURRENT")).read().strip())))
    transform = json.load(open(os.path.join(dataset, manifest["transform"]["path"])))
    rows = read_landing(landing)
    asked = json.loads(series) if series else {"feature": []}
    if series:
        make_features(rows, asked, transform["target"]["column"])
    made = [feature["name"] for feature in asked["feature"] if feature["type"] not in EXACT_FEATURES]
    shards = read_shards(dataset, manifest, "train")
    train = [rows[origin] for origin in shards["origin"]]
    assert len(train) == transform["fitted_rows"], (len(train), transform["fitted_rows"])

    columns = {}
    for spec in transform["inputs"]:
        values = [row[spec["name"]] for row in train]
        if spec["kind"] == "numeric":
            column = np.array([np.nan if v is None else float(v) for v in values])
            for missing in transform["missing_values"]:
                column[column == missing] = np.nan
            columns[spec["name"]] = column
        else:
            columns[spec["name"]] = [None if v is None or v.strip() == "" else v for v in values]

    # Categories as they landed, for steps that group by them.
    columns[None] = {spec["name"]: columns[spec["name"]] for spec in transform["inputs"] if spec["kind"] != "numeric"}
    table, approximate = Table(), set(made)
    for step in transform["steps"]:
        if step["type"] == "knn":
            fill_from_neighbours(step, columns, table)
            approximate.update(fitted["name"] for fitted in step["columns"])
            continue
        for fitted in step["columns"]:
            name = fitted["name"]
            if step["type"] == "impute":
                strategy = fitted["statistic"]
                if strategy != "constant":
                    imputer = SimpleImputer(strategy=strategy).fit(columns[name].reshape(-1, 1))
                    if strategy == "median":
                        table.quantile(name, strategy, fitted["value"], imputer.statistics_[0], name not in approximate)
                    else:
                        table.add(name, strategy, fitted["value"], imputer.statistics_[0])
                columns[name] = np.where(np.isnan(columns[name]), fitted["value"], columns[name])
            elif step["type"] == "winsorize":
                # As shares: a hundredth of a percentage is not always the share to the last bit.
                shares = [fitted["lower"], fitted["upper"]]
                if fitted.get("groups"):
                    columns[name] = cap_groups(fitted, shares, columns, table, name not in approximate)
                    continue
                low, high = np.nanquantile(columns[name], shares)
                table.quantile(name, f"percentile {fitted['lower']}", fitted["low"], low, name not in approximate)
                table.quantile(name, f"percentile {fitted['upper']}", fitted["high"], high, name not in approximate)
                if name not in approximate:
                    table.add(name, "clipped low", fitted["clipped_low"], np.sum(columns[name] < low))
                    table.add(name, "clipped high", fitted["clipped_high"], np.sum(columns[name] > high))
                columns[name] = np.clip(columns[name], fitted["low"], fitted["high"])
            elif step["type"] == "standardize":
                scaler = StandardScaler().fit(columns[name].reshape(-1, 1))
                table.add(name, "mean", fitted["mean"], scaler.mean_[0])
                table.add(name, "scale", fitted["scale"], scaler.scale_[0])
                if fitted.get("groups"):
                    columns[name] = scale_groups(fitted, columns, table)
                    continue
                columns[name] = (columns[name] - fitted["mean"]) / fitted["scale"]
            elif step["type"] == "min_max":
                scaler = MinMaxScaler().fit(columns[name].reshape(-1, 1))
                table.add(name, "min", fitted["min"], scaler.data_min_[0])
                table.add(name, "max", fitted["max"], scaler.data_max_[0])
                if fitted.get("clip"):
                    columns[name] = np.clip(columns[name], fitted["min"], fitted["max"])
                # A range without width becomes 0.
                columns[name] = (columns[name] - fitted["min"]) / ((fitted["max"] - fitted["min"]) or 1)
            elif step["type"] == "robust":
                quantiles = (100 * fitted["lower"], 100 * fitted["upper"])
                scaler = RobustScaler(quantile_range=quantiles).fit(columns[name].reshape(-1, 1))
                table.quantile(name, "median", fitted["median"], scaler.center_[0], name not in approximate)
                table.quantile(name, "spread", fitted["scale"], scaler.scale_[0], name not in approximate)
                columns[name] = (columns[name] - fitted["median"]) / fitted["scale"]
            elif step["type"] == "bin":
                columns[name] = bin_numbers(fitted, columns[name], table, name not in approximate)
                approximate.discard(name)
            elif step["type"] == "log1p":
                columns[name] = np.log1p(columns[name])
                approximate.add(name)
            elif step["type"] == "power":
                columns[name] = raise_to_power(fitted, columns[name], table)
                approximate.add(name)
            elif step["type"] == "categories":
                if fitted["encoding"] == "target":
                    y = np.array([float(row[transform["target"]["column"]]) for row in train])
                    index = [feature["name"] for feature in transform["features"]].index(name)
                    columns[name] = encode_by_target(fitted, columns[name], y, transform["target"], shards["x"][:, index], table)
                else:
                    columns[name] = encode(fitted, columns[name], table)
            else:
                raise SystemExit(f"unknown step {step['type']}")

    # The shard's numbers are those of the table, rounded to f32 once.
    for index, feature in enumerate(transform["features"]):
        if feature["name"].endswith("__missing"):
            continue
        expected = columns[feature["column"]]
        if expected is None:
            continue
        if feature["category"] is not None:
            expected = expected == feature["category"]
        found = shards["x"][:, index]
        if feature["column"] in approximate:
            # Logarithms and sums of neighbours may differ in their last bit, and so the rounded numbers in theirs.
            np.testing.assert_allclose(found, expected, rtol=2e-7, atol=1e-9, err_msg=feature["name"])
        else:
            np.testing.assert_array_equal(found, np.asarray(expected, dtype=np.float32), feature["name"])
    target = transform["target"]
    y = np.array([float(row[target["column"]]) for row in train])
    table.add(target["column"], "target mean", target["mean"], y.mean())
    table.add(target["column"], "target scale", target["scale"], y.std())
    np.testing.assert_array_equal(shards["y"], ((y - target["offset"]) / target["scale"]).astype(np.float32))
    return table, len(train)


def members(groups, column, columns):
    """Rows of each group that has numbers of its own, and the rows of no such group."""
    names = np.array(["" if v is None else v for v in columns[None][groups["by"]]])
    rest = np.ones(len(names), dtype=bool)
    own = {}
    for name in sorted(set(names) - {""}):
        rows = names == name
        if np.isfinite(column[rows]).sum() >= groups["min_count"]:
            own[name] = rows
            rest &= ~rows
    return own, rest


def bin_numbers(fitted, column, table, exact):
    """The bins of scikit-learn, and of polars where they are quantiles."""
    name, bins, strategy = fitted["name"], fitted["bins"], fitted["strategy"]
    known = column[~np.isnan(column)]
    # scikit-learn takes percentages, and a hundredth of one is not always the share to the last bit.
    if strategy == "quantile":
        expected = np.unique(np.quantile(known, [i / bins for i in range(bins + 1)]))
    else:
        expected = np.linspace(known.min(), known.max(), bins + 1)
    assert len(fitted["boundaries"]) == len(expected), (name, fitted["boundaries"], expected)
    for at, (found, boundary) in enumerate(zip(fitted["boundaries"], expected)):
        table.quantile(name, f"boundary {at} of {bins}", found, boundary, exact)
    options = {"quantile_method": "linear"} if strategy == "quantile" else {}
    with warnings.catch_warnings():
        # It warns of the boundaries that it merges.
        warnings.simplefilter("ignore")
        binner = KBinsDiscretizer(bins, encode="ordinal", strategy=strategy, subsample=None, **options)
        binner.fit(known.reshape(-1, 1))
    for at, (found, boundary) in enumerate(zip(fitted["boundaries"], binner.bin_edges_[0], strict=True)):
        table.add(name, f"scikit-learn boundary {at}", found, boundary)
    binned = np.full(len(column), np.nan)
    binned[~np.isnan(column)] = np.searchsorted(expected[1:-1], known, side="right")
    # polars has a last bin of the largest value alone where that is a boundary twice.
    if strategy == "quantile" and len(expected) == bins + 1:
        shares = [i / bins for i in range(1, bins)]
        cut = polars.Series(known).qcut(shares, left_closed=True, include_breaks=True)
        _, found = np.unique(cut.struct.field("breakpoint").to_numpy(), return_inverse=True)
        table.add(name, "bins other than polars", np.sum(found != binned[~np.isnan(column)]) + 1, 1)
    ours = binner.transform(known.reshape(-1, 1))[:, 0]
    table.add(name, "bins other than scikit-learn", np.sum(ours != binned[~np.isnan(column)]) + 1, 1)
    return binned


def cap_groups(fitted, shares, columns, table, exact):
    """Caps by group; the others share those of all rows."""
    column, groups = columns[fitted["name"]], fitted["groups"]
    own, rest = members(groups, column, columns)
    assert sorted(groups["caps"]) == sorted(own), (sorted(groups["caps"]), sorted(own))
    after = column.copy()
    parts = [(name, groups["caps"][name], rows, rows) for name, rows in own.items()]
    for name, caps, rows, fitted_on in parts + [("all", fitted, rest, np.ones(len(column), dtype=bool))]:
        low, high = np.nanquantile(column[fitted_on], shares)
        table.quantile(fitted["name"], f"low {name}", caps["low"], low, exact)
        table.quantile(fitted["name"], f"high {name}", caps["high"], high, exact)
        table.add(fitted["name"], "clipped low", caps["clipped_low"], np.sum(column[rows] < low))
        table.add(fitted["name"], "clipped high", caps["clipped_high"], np.sum(column[rows] > high))
        after[rows] = np.clip(column[rows], caps["low"], caps["high"])
    return after


def scale_groups(fitted, columns, table):
    """Means and deviations by group; the others share those of all rows, which were compared."""
    column, groups = columns[fitted["name"]], fitted["groups"]
    own, rest = members(groups, column, columns)
    assert sorted(groups["moments"]) == sorted(own), (sorted(groups["moments"]), sorted(own))
    after = (column - fitted["mean"]) / fitted["scale"]
    for name, rows in own.items():
        scaler, moments = StandardScaler().fit(column[rows].reshape(-1, 1)), groups["moments"][name]
        table.add(fitted["name"], f"mean {name}", moments["mean"], scaler.mean_[0])
        table.add(fitted["name"], f"scale {name}", moments["scale"], scaler.scale_[0])
        after[rows] = (column[rows] - moments["mean"]) / moments["scale"]
    return after


def encode_by_target(fitted, values, y, target, found, table):
    """The fold of each row is read off what the row got; then every number is made again from the other folds.

    scikit-learn agrees where all rows are taken; its folds are dealt anew in each call of `fit_transform`, ours follow from
    the rows. Its numbers are not standardized, ours are where the target is.
    """
    outcomes, [element] = fitted["outcomes"], fitted["outcomes"]["elements"]
    ids = {v: i + 2 for i, v in enumerate(fitted["values"])} | {None: 1}
    ids = np.array([ids.get(v, 0) for v in values])
    others = np.array(element["others"])
    near = np.abs(others[:, ids].astype(np.float32) - found)
    folds = near.argmin(axis=0)
    assert near.min(axis=0).max() == 0 and len(set(folds)) == outcomes["folds"]
    scaled = target["scale"] != 1 or target["offset"] != 0

    def numbers(rows):
        mean = y[rows].mean()
        counts = np.bincount(ids[rows], minlength=len(fitted["values"]) + 2).astype(float)
        sums = np.bincount(ids[rows], weights=y[rows], minlength=len(fitted["values"]) + 2)
        counts[0] = sums[0] = 0
        drawn = (sums + outcomes["smoothing"] * mean) / (counts + outcomes["smoothing"])
        return (drawn - mean) / y[rows].std() if scaled else drawn

    every = np.ones(len(y), dtype=bool)
    for what, ours, theirs in [("all", element["all"], numbers(every))] + [
        (f"without {fold}", others[fold], numbers(folds != fold)) for fold in range(outcomes["folds"])
    ]:
        for i, (own, their) in enumerate(zip(ours, theirs)):
            # Means of standardized numbers are near 0, so they are reported in deviations.
            table.add(fitted["name"], f"{what} {i}", own + 1, their + 1)
    if not (ids == 0).any() and not (ids == 1).any():
        encoder = TargetEncoder(smooth=outcomes["smoothing"], target_type="continuous")
        encoder.fit(np.array(values, dtype=object).reshape(-1, 1), y)
        theirs = encoder.encodings_[0][np.argsort(np.argsort(fitted["values"]))]
        for own, their in zip(element["all"][2:], theirs):
            table.add(fitted["name"], "scikit-learn", own * y.std() + y.mean() if scaled else own, their)
    return others[folds, ids]


def encode(fitted, values, table):
    """Ids of categories, or the numbers that encode them."""
    if fitted["encoding"] == "hash":
        # Python has no xxh3 at hand: what is checked is that equal texts share an id and that few others do.
        assert fitted["values"] == [] and fitted["buckets"] > 0
        return None
    counts = {v: values.count(v) for v in set(values) if v is not None}
    expected = sorted(counts, key=lambda v: (-counts[v], v.encode()))
    expected = [v for v in expected if counts[v] >= fitted.get("min_count", 1)]
    assert fitted["values"] == expected, (fitted["values"], expected)
    assert fitted["counts"] == [counts[v] for v in expected]
    if fitted["encoding"] == "frequency":
        rows, missing = fitted["frequency"]["rows"], fitted["frequency"]["missing"]
        table.add(fitted["name"], "rows", rows, len(values))
        table.add(fitted["name"], "missing", missing, values.count(None))
        shares = {v: counts[v] / len(values) for v in expected} | {None: values.count(None) / len(values)}
        return np.array([shares.get(v, 0) for v in values])
    ids = {v: i + 2 for i, v in enumerate(expected)}
    return np.array([1 if v is None else ids.get(v, 0) for v in values])


def fill_from_neighbours(step, columns, table):
    """All training rows are the reference, so scikit-learn, fitted on them, must find the same."""
    names = [fitted["name"] for fitted in step["columns"]]
    before = np.column_stack([columns[name] for name in names])
    imputer = KNNImputer(n_neighbors=step["neighbours"], weights=step["weights"])
    after = imputer.fit_transform(before)
    for i, fitted in enumerate(step["columns"]):
        reference = np.array([np.nan if v is None else v for v in fitted["reference"]])
        assert len(reference) == len(before), "the reference is not the whole training split"
        # A scaled column has cells near 0, whose error is that of what was taken off.
        np.testing.assert_allclose(np.sort(reference), np.sort(before[:, i]), rtol=1e-12, atol=1e-12)
        missing = np.isnan(before[:, i])
        table.add(names[i], "missing", fitted["missing"], missing.sum())
        # A column that was scaled has a mean near 0, which is reported in deviations.
        table.add(names[i], "mean + 1", fitted["mean"] + 1, np.nanmean(before[:, i]) + 1)
        columns[names[i]] = after[:, i]


def raise_to_power(fitted, column, table):
    """The power is compared with the root of the likelihood's slope: scikit-learn's own search ends at 8 digits, and earlier
    where numbers differ little."""
    observed = column[~np.isnan(column)]
    if fitted["method"] == "box_cox":
        transform, weight = scipy.special.boxcox, np.log(observed)
        usual = scipy.stats.boxcox_normmax(observed, method="mle")
        l = np.log(observed)
        signs = np.ones(len(observed), dtype=bool)
    else:
        transform, weight = scipy.stats.yeojohnson, np.sign(observed) * np.log1p(np.abs(observed))
        usual = scipy.stats.yeojohnson_normmax(observed)
        l = np.log1p(np.abs(observed))
        signs = observed >= 0
    if fitted["method"] == "box_cox" or observed.min() >= 1:
        # Another unit moves no maximum, and powers of numbers near 1 keep their digits.
        base = observed + (fitted["method"] != "box_cox")
        l = weight = np.log(base / np.exp(l.mean()))

    def slope(power):
        exponent = np.where(signs, power, 2 - power)
        t = exponent * l
        raised = np.where(exponent == 0, l, np.expm1(t) / np.where(exponent == 0, 1, exponent))
        # Where t is small the formula loses digits.
        series = 0.5 + t / 3 + t**2 / 8 + t**3 / 30 + t**4 / 144
        formula = (l * np.exp(t) - raised) / np.where(exponent == 0, 1, exponent)
        grown = np.where(np.abs(t) < 1e-2, l * l * series, formula)
        y = np.where(signs, raised, -raised)
        return weight.mean() - np.mean((y - y.mean()) * (grown - grown.mean())) / y.var()

    root = scipy.optimize.brentq(slope, usual - 0.01, usual + 0.01, xtol=1e-14)
    table.add(fitted["name"], "lambda", fitted["lambda"], root)
    assert abs(fitted["lambda"] - usual) < 1e-4 * max(1, abs(usual)), (fitted["lambda"], usual)
    return np.where(np.isnan(column), np.nan, transform(column, fitted["lambda"]))


MICROS = {"us": 1, "ms": 10**3, "s": 10**6, "m": 60 * 10**6, "h": 3600 * 10**6, "d": 86400 * 10**6}


def make_features(rows, asked, target):
    """Adds the features to the rows, one after another, each from a window of its own that is summed by itself."""
    series, epoch = asked["series"], datetime.datetime(1970, 1, 1)

    def read(row):
        text = row[series["time"]]
        if isinstance(text, datetime.datetime):
            at = text.replace(tzinfo=None)
            return at, (at - epoch) // datetime.timedelta(microseconds=1)
        if "clock" in series:
            text += " " + row[series["clock"]]
        form = series.get("format")
        at = datetime.datetime.strptime(text, form) if form else datetime.datetime.fromisoformat(text)
        return at, (at - epoch) // datetime.timedelta(microseconds=1)

    def number(cell, missing):
        value = np.nan if cell is None else float(cell)
        return np.nan if value in missing else value

    missing = asked.get("missing_values", [])
    seen, line = set(), []
    for origin in sorted(rows):
        content = tuple((k, v) for k, v in rows[origin].items() if not k.startswith("_feedline_"))
        if content not in seen:
            seen.add(content)
            line.append((read(rows[origin])[1], np.isnan(number(rows[origin][target], missing)), origin))
    line.sort()
    line = [entry for i, entry in enumerate(line) if i == 0 or line[i - 1][0] != entry[0]]
    times, origins = [entry[0] for entry in line], [entry[2] for entry in line]
    for feature in asked["feature"]:
        kind, by_rows = feature["type"], "rows" in feature
        places = list(range(len(line))) if by_rows else times
        span = feature.get("rows")
        if "window" in feature:
            unit = feature["window"].lstrip("0123456789")
            span = int(feature["window"][: -len(unit)]) * MICROS[unit]
        least = feature.get("min_periods", feature.get("rows", 1))
        right = feature.get("closed") == "right"
        if kind != "calendar":
            values = np.array([number(rows[origin][feature["column"]], missing) for origin in origins])
        made = []
        for i in range(len(line)):
            if kind == "calendar":
                at = read(rows[origins[i]])[0]
                made.append(float({"weekday": at.isoweekday(), "day_of_year": at.timetuple().tm_yday}.get(
                    feature["part"], getattr(at, feature["part"], None))))
            elif kind in ("lag", "difference"):
                def lag(i):
                    j = bisect.bisect_right(places, places[i] - span) - 1
                    return values[j] if j >= 0 else np.nan
                at = i if right else i - 1
                made.append(lag(i) if kind == "lag" else values[at] - lag(at) if at >= 0 else np.nan)
            elif kind in ("forward_fill", "interpolate"):
                known = np.flatnonzero(~np.isnan(values[max(0, i - 2000):i])) + max(0, i - 2000)
                if span is not None:
                    known = [k for k in known[-2:] if places[i] - places[k] <= span]
                if not np.isnan(values[i]) or len(known) < (1 if kind == "forward_fill" else 2):
                    made.append(values[i])
                elif kind == "forward_fill":
                    made.append(values[known[-1]])
                else:
                    made.append(np.polyval(np.polyfit([times[known[-1]] - times[k] for k in known[-2:]], values[known[-2:]], 1),
                                           times[known[-1]] - times[i]))
            else:
                first = places[i] - span + (1 if right else 0)
                window = values[bisect.bisect_left(places, first):i + (1 if right else 0)]
                window = window[~np.isnan(window)]
                if len(window) < max(least, 2 if kind in ("rolling_std", "momentum") else 1):
                    made.append(np.nan)
                else:
                    made.append({"rolling_mean": np.mean, "rolling_std": lambda w: np.std(w, ddof=1), "rolling_min": np.min,
                                 "rolling_max": np.max, "momentum": lambda w: w[-1] - w[0]}[kind](window))
        for origin, value in zip(origins, made):
            rows[origin][feature["name"]] = None if np.isnan(value) else value


class Table:
    def __init__(self):
        self.rows, self.quantiles, self.equal = [], 0, 0

    def add(self, column, what, ours, theirs):
        difference = 0.0 if ours == theirs else abs(ours - theirs) / max(abs(theirs), 1e-300)
        self.rows.append((column, what, ours, float(theirs), difference))

    def quantile(self, column, what, ours, theirs, exact):
        """A number that is the same to the last bit where the cells that it is made of are."""
        self.add(column, what, ours, theirs)
        self.quantiles += exact
        self.equal += exact and ours == theirs

    def agrees(self):
        return self.worst() <= LIMIT and self.equal == self.quantiles

    def worst(self):
        return max(row[4] for row in self.rows)

    def show(self):
        print(f"{'column':<22} {'number':<16} {'feedline':>24} {'numpy/scikit-learn':>24} {'relative':>9}")
        for column, what, ours, theirs, difference in self.rows:
            print(f"{column:<22} {what:<16} {ours:>24.16g} {theirs:>24.16g} {difference:>9.1e}")


def read_landing(folder):
    rows = {}
    for path in sorted(glob.glob(os.path.join(folder, "data", "*.parquet"))):
        for row in pyarrow.parquet.read_table(path).to_pylist():
            rows[row["_feedline_seq"] << 24 | row["_feedline_row"]] = row
    return rows


def read_shards(dataset, manifest, split):
    x, y, origin = [], [], []
    for part in manifest["splits"]:
        for shard in part["shards"] if part["split"] == split else []:
            with pyarrow.memory_map(os.path.join(dataset, shard["path"])) as source:
                table = pyarrow.ipc.open_file(source).read_all()
            assert table.num_rows == shard["rows"]
            values = np.concatenate([c.flatten().to_numpy() for c in table["x"].chunks])
            x.append(values.reshape(table.num_rows, -1))
            y.append(table["y"].to_numpy())
            origin.extend(table["origin"].to_pylist())
    return {"x": np.concatenate(x), "y": np.concatenate(y), "origin": origin}


if __name__ == "__main__":
    all_of(sys.argv[2:]) if sys.argv[1] == "--all" else main(*sys.argv[1:])
