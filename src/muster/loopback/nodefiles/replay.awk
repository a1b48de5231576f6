# Puts what changes at run time into a node's capture. PROCESSES holds lines "pid gpu mebibytes name".
BEGIN {
    count = split(ENVIRON["PROCESSES"], lines, "\n")
    for (i = 1; i <= count; i++) {
        if (split(lines[i], part, " ") < 4) continue
        total++
        pid[total] = part[1]; on[total] = part[2]; used[total] = part[3]; name[total] = part[4]
    }
    bare = format ~ /noheader/; nounits = format ~ /nounits/
    wanted = split(fields, want, ",")
    if (mode == "query-gpu")
        while ((getline line < ENVIRON["SETTINGS"]) > 0) {
            split(line, part, " ")
            set_to[part[1], part[2]] = substr(line, length(part[1]) + length(part[2]) + 3)
        }
    alias["gpu_name"] = "name"; alias["gpu_uuid"] = "uuid"; alias["gpu_serial"] = "serial"; alias["gpu_bus_id"] = "pci.bus_id"
    alias["used_memory"] = "used_gpu_memory"
    if (mode == "compute-apps") alias["name"] = "process_name"
}
function put(text) {
    gsub(/@DRIVER@/, ENVIRON["DRIVER"], text)
    gsub(/@CUDA@/, ENVIRON["CUDA"], text)
    gsub(/@SHORT@/, ENVIRON["SHORT"], text)
    gsub(/@STAMP@/, ENVIRON["STAMP"], text)
    gsub(/@CSV_STAMP@/, ENVIRON["CSV_STAMP"], text)
    gsub(/@PERSISTENCE@/, ENVIRON["PERSISTENCE"], text)
    gsub(/@PM@/, ENVIRON["PERSISTENCE"] == "Enabled" ? "On " : "Off", text)
    if (text ~ /@WIDE_DRIVER@/) {
        gsub(/@WIDE_DRIVER@/, sprintf("%-14s", ENVIRON["DRIVER"]), text)
        gsub(/@WIDE_CUDA@/, sprintf("%-9s", ENVIRON["CUDA"]), text)
    }
    return text
}
function bare_name(heading) { sub(/ \[.*/, "", heading); return heading }
function refuse(field) {
    printf "Field \"%s\" is not a valid field to query.\n\n", field
    failed = 2
    exit failed
}
function value(text) {
    if (nounits && text !~ /^\[/) sub(/ (MiB|W|%|MHz|us|KB\/s)$/, "", text)
    return text
}
function columns(   i, field, heading) {
    width = split($0, headings, ", ")
    for (i = 1; i <= width; i++) column[bare_name(headings[i])] = i
    for (i = 1; i <= wanted; i++) {
        gsub(/^ +| +$/, "", want[i])
        field = want[i]
        if (!(field in column) && (field in alias)) field = alias[field]
        if (!(field in column)) refuse(want[i])
        pick[i] = column[field]
        heading = heading (i > 1 ? ", " : "") (nounits ? headings[pick[i]] : headings[pick[i]])
    }
    if (!bare) print heading
}
function row(   i, text) {
    for (i = 1; i <= wanted; i++) text = text (i > 1 ? ", " : "") value(cell[pick[i]])
    print text
}
mode == "xml" && /@PROCESSES [0-9]+@/ {
    for (i = 1; i <= total; i++) {
        if (on[i] != $2 + 0) continue
        print "\t\t\t<process_info>"
        print "\t\t\t\t<gpu_instance_id>N/A</gpu_instance_id>"
        print "\t\t\t\t<compute_instance_id>N/A</compute_instance_id>"
        print "\t\t\t\t<pid>" pid[i] "</pid>"
        print "\t\t\t\t<type>C</type>"
        print "\t\t\t\t<process_name>" name[i] "</process_name>"
        print "\t\t\t\t<used_memory>" used[i] " MiB</used_memory>"
        print "\t\t\t</process_info>"
    }
    next
}
mode == "table" && /@PROCESSES@/ {
    if (!total) printf "|  %-86s |\n", "No running processes found"
    for (i = 1; i <= total; i++)
        printf "| %4d   N/A  N/A %15d      C   %-30s %11dMiB |\n", on[i], pid[i], name[i], used[i]
    next
}
mode == "query-gpu" {
    $0 = put($0)
    if (NR == 1) { columns(); next }
    split($0, cell, ", ")
    for (title in column)
        if ((cell[column["uuid"]], title) in set_to) cell[column[title]] = set_to[cell[column["uuid"]], title]
    if (gpu == "" || gpu == cell[column["index"]] || gpu == cell[column["uuid"]] || gpu == cell[column["pci.bus_id"]]) row()
    next
}
mode == "compute-apps" {
    # First the capture's heading, then one line for each GPU with @PID@, @NAME@ and @USED@ in it, its index in front.
    if (NR == 1) { columns(); next }
    split($0, lead, "\t")
    for (i = 1; i <= total; i++) {
        if (on[i] != lead[1]) continue
        text = lead[2]
        sub(/@PID@/, pid[i], text); sub(/@NAME@/, name[i], text); sub(/@USED@/, used[i], text)
        split(put(text), cell, ", ")
        row()
    }
    next
}
{ print put($0) }
END { exit failed }
