//! [`SuiteAnswer`]: configurations of a job with what each costs, which every format shows.

use serde::Serialize;
use serde_json::{Map, Value};
use tonnage_core::job::JobSpec;
use tonnage_core::job::keys;
use tonnage_core::plan::suite::Priced;
use tonnage_core::plan::time::{Bill, Range};

use crate::answer::fit_name;
use crate::bill::BillView;
use crate::fit::quoted_cell;
use crate::view::VERSION;

/// What is shown.
pub struct SuiteAnswer {
    /// The first configuration's job.
    pub job: JobSpec,
    pub rows: Vec<Priced>,
}

/// The sum over all configurations and their runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Totals {
    pub runs: u64,
    pub factor: f64,
    pub wall_seconds: Range,
    pub gpu_hours: Range,
    pub kilowatt_hours: Option<Range>,
    pub dollars: Option<Range>,
}

#[derive(Serialize)]
pub struct CostView<'a> {
    version: u32,
    model: &'a str,
    configurations: Vec<RowView<'a>>,
    total: Totals,
}

#[derive(Serialize)]
struct RowView<'a> {
    name: &'a str,
    count: u64,
    changes: Map<String, Value>,
    gpu: Option<&'a str>,
    factor: Option<f64>,
    verdict: Option<&'static str>,
    total_bytes: Option<u64>,
    cost: Option<BillView<'a>>,
    error: Option<&'a str>,
}

impl SuiteAnswer {
    /// The sums; energy and price only where every configuration's are known.
    pub(crate) fn totals(&self) -> Totals {
        let zero = Some(Range::default());
        let start = Totals { kilowatt_hours: zero, dollars: zero, ..Totals::default() };
        self.rows.iter().fold(start, |sum, row| {
            let count = row.configuration.count;
            let times = |range: Range| range.scaled(count as f64);
            let bill = bill_of(row);
            let costs = bill.map(|bill| &bill.costs);
            let add = |sum: Option<Range>, more: Option<Range>| Some(sum?.plus(times(more?)));
            Totals {
                runs: sum.runs + count,
                factor: sum.factor + row.factor.unwrap_or(0.0) * count as f64,
                wall_seconds: sum.wall_seconds.plus(times(costs.map_or(Range::default(), |costs| costs.wall_seconds))),
                gpu_hours: sum.gpu_hours.plus(times(costs.map_or(Range::default(), |costs| costs.gpu_hours))),
                kilowatt_hours: add(sum.kilowatt_hours, costs.and_then(|costs| costs.kilowatt_hours)),
                dollars: add(sum.dollars, costs.and_then(|costs| costs.dollars)),
            }
        })
    }
}

/// What the configuration costs, if there is such a job and its rates are known.
pub(crate) fn bill_of(row: &Priced) -> Option<&Bill> {
    row.appraisal.as_ref().ok()?.bill.as_ref()
}

impl<'a> CostView<'a> {
    /// The document for `answer`.
    pub fn new(answer: &'a SuiteAnswer) -> Self {
        Self {
            version: VERSION,
            model: &answer.job.model.name,
            configurations: answer.rows.iter().map(|row| RowView::new(row, &answer.job)).collect(),
            total: answer.totals(),
        }
    }
}

impl<'a> RowView<'a> {
    fn new(row: &'a Priced, base: &'a JobSpec) -> Self {
        let appraisal = row.appraisal.as_ref().ok();
        let changes = &row.configuration.changes;
        let gpu = changes.iter().rfind(|set| set.key == keys::GPU).map(|set| set.value.as_str());
        Self {
            name: &row.configuration.name,
            count: row.configuration.count,
            changes: changes.iter().map(|set| (set.key.clone(), set.value.as_str().into())).collect(),
            gpu: gpu.or(Some(&base.gpu.id)),
            factor: row.factor,
            verdict: appraisal.map(|appraisal| fit_name(appraisal.verdict.fit)),
            total_bytes: appraisal.map(|appraisal| appraisal.verdict.total_bytes),
            cost: bill_of(row).map(BillView::new),
            error: row.appraisal.as_ref().err().map(String::as_str),
        }
    }
}

/// The configurations as comma-separated values, a line each, for spreadsheets.
pub fn suite_csv(answer: &SuiteAnswer) -> String {
    let mut text = "configuration,count,factor,verdict,total_bytes,gpus,steps,step_seconds,wall_hours,gpu_hours,\
                    kilowatt_hours,dollars,dollars_low,dollars_high,error\n"
        .to_owned();
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.6}"));
    for row in &answer.rows {
        let appraisal = row.appraisal.as_ref().ok();
        let bill = bill_of(row);
        let costs = bill.map(|bill| &bill.costs);
        let dollars = costs.and_then(|costs| costs.dollars);
        let cells = [
            quoted_cell(&row.configuration.name),
            row.configuration.count.to_string(),
            number(row.factor),
            appraisal.map_or("", |appraisal| fit_name(appraisal.verdict.fit)).to_owned(),
            appraisal.map_or_else(String::new, |appraisal| appraisal.verdict.total_bytes.to_string()),
            bill.map_or_else(String::new, |bill| bill.gpus.to_string()),
            bill.map_or_else(String::new, |bill| bill.steps.to_string()),
            number(bill.map(|bill| bill.step.seconds.typical)),
            number(costs.map(|costs| costs.wall_seconds.typical / 3600.0)),
            number(costs.map(|costs| costs.gpu_hours.typical)),
            number(costs.and_then(|costs| costs.kilowatt_hours).map(|energy| energy.typical)),
            number(dollars.map(|dollars| dollars.typical)),
            number(dollars.map(|dollars| dollars.low)),
            number(dollars.map(|dollars| dollars.high)),
            row.appraisal.as_ref().err().map_or_else(String::new, |problem| quoted_cell(problem)),
        ];
        text.push_str(&format!("{}\n", cells.join(",")));
    }
    text
}
