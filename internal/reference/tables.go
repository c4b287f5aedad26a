package reference

import (
	"fmt"
	"strings"
	"time"

	"github.com/netnice/netnice/internal/auth"
	"github.com/netnice/netnice/internal/limit"
	"github.com/netnice/netnice/internal/metrics"
	"github.com/netnice/netnice/internal/rules"
)

// metricsPage returns the page of figures for Prometheus.
func metricsPage(string) (string, error) {
	var figures, labels [][]string
	for _, f := range metrics.Figures() {
		kind := "gauge"
		if f.IsCounter {
			kind = "counter"
		}
		figures = append(figures, []string{code(f.Name), kind, f.Help, strings.Join(f.Labels, ", ")})
	}
	for _, l := range metrics.Labels() {
		labels = append(labels, []string{code(l.Name), l.Means})
	}
	return "# Metrics\n\n" +
		"`netnice metrics` prints these figures for Prometheus. `--listen` serves them, and `--output` writes them to a file.\n" +
		"While no daemon answers, `netnice_up` is 0 and there are no other figures.\n\n" +
		table([]string{"name", "type", "help", "labels"}, figures) +
		"\n## Labels\n\n" + table([]string{"label", "is"}, labels), nil
}

// limitsPage returns the page of bounds, rights and quotas.
func limitsPage(string) (string, error) {
	var fields, quotas, rights [][]string
	for _, f := range limit.Fields() {
		part := ""
		if f.IsWholeOnly {
			part = "yes"
		}
		fields = append(fields, []string{code(f.Name), f.Means, f.Values, part})
	}
	for _, q := range auth.Quotas() {
		quotas = append(quotas, []string{prose(q.Of), q.Figure})
	}
	for _, r := range auth.Table() {
		rights = append(rights, []string{prose(r.What), r.Who.String()})
	}
	return "# Bounds and quotas\n\n" +
		"## Fields of a limit\n\nThe names are those of the flags. A field that a request leaves out stays as it is.\n\n" +
		table([]string{"field", "is", "values", "only of all traffic, not with `--to`"}, fields) +
		fmt.Sprintf("\nA limit for a time (`--for`) holds for %v to %d years. It has rates only.\n", time.Duration(limit.MinForNS), limit.MaxYears) +
		"\n## Quotas\n\nRoot and members of the administrators' group have no bound but the totals.\n\n" +
		table([]string{"of", "at most"}, quotas) +
		fmt.Sprintf("\nA request beyond the rate waits for up to %v. Then it is refused.\n", auth.MaxRequestWait) +
		fmt.Sprintf("A request that reads rule files counts as %d requests, one that looks for a unit or container as %d.\n", auth.ReloadCost, auth.SearchCost) +
		fmt.Sprintf("An answer counts as one more request for each %d bytes.\n", auth.BytesPerCount) +
		"\n## Rights\n\nAn action in no line is for administrators only.\n\n" +
		table([]string{"action", "who may"}, rights), nil
}

// rulesPage returns the page of the keys of rule files.
func rulesPage(string) (string, error) {
	var keys, bounds [][]string
	for _, k := range rules.Keys() {
		by := "everybody"
		if k.IsAdministrators {
			by = "administrators"
		}
		keys = append(keys, []string{code(k.Name), k.Value, code(k.Name + " = " + k.Example), k.Means, by})
	}
	for _, b := range rules.Bounds() {
		bounds = append(bounds, []string{b.Of, fmt.Sprint(b.Administrators), fmt.Sprint(b.Users)})
	}
	return "# Keys of rule files\n\n" +
		"The files are TOML: `/etc/netnice/netnice.toml`, `/etc/netnice/conf.d/*.toml`, and a user's own\n" +
		"`~/.config/netnice/netnice.toml`. A rule begins with `[[rule]]`. The man page netnice.toml(5) says which rule holds.\n\n" +
		table([]string{"key", "value", "example", "means", "in files of"}, keys) +
		"\n## Bounds\n\n" + table([]string{"of", "administrators' files", "a user's own file"}, bounds) +
		fmt.Sprintf("\nAt most %d rules may be for one address. Each range of ports counts by itself.\n", rules.MostPerDestination) +
		fmt.Sprintf("A rule with `adapt` names at most %d prefixes.\n", rules.MostAdaptPrefixes), nil
}
